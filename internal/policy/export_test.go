package policy

// TestLook looks at cases as the engine does, which this package cannot import.
var TestLook func(set *Set) Look
