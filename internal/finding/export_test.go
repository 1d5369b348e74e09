package finding

// registered are the rules of a cloud that the tests of this package run besides the
// general ones. An external test registers them, because their package imports this one.
var registered []Rule

// Register adds rules to those that the tests run.
func Register(rules []Rule) { registered = append(registered, rules...) }
