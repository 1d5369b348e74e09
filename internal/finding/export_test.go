package finding

// registered are the cloud-specific rules that the tests of this package also run. An external test
// registers them, because their package imports this one.
var registered []Rule

// Register adds rules to the tested ones.
func Register(rules []Rule) { registered = append(registered, rules...) }
