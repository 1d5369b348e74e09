// Package policies holds the ready policies, which `curfew init` writes.
package policies

import "embed"

// Files are the policies, one file for each usual pattern.
//
//go:embed *.yaml
var Files embed.FS
