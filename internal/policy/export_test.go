package policy

// TestCaseFacts returns the facts of cases like the round engine, which this package cannot import.
var TestCaseFacts func(set *Set) FactsFunc
