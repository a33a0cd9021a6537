//! Contract of every driver.

use super::*;

#[test]
fn contract_of_every_driver() {
    for (i, driver) in ALL.iter().enumerate() {
        assert!(ALL[..i].iter().all(|d| d.name != driver.name), "{} twice", driver.name);
        assert_eq!(find(driver.name), Some(*driver));
    }
    for driver in ALL.iter().copied().chain([&example::LSI53C810]) {
        let name = driver.name;
        assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
        assert!(!driver.about.is_empty() && !driver.guest_modules.is_empty(), "{name}");
    }
}
