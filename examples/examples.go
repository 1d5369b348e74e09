// Package examples holds policies: the ready ones under policies, to be copied, and
// the one that the demonstration runs.
package examples

import _ "embed" // for the demonstration's policies

// Demo are the policies of `curfew enforce --demo`.
//
//go:embed demo/demo.yaml
var Demo []byte
