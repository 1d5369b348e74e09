package policy

// TestCaseFacts looks at cases as the engine does, which this package cannot import.
var TestCaseFacts func(set *Set) FactsFunc
