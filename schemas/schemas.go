// Package schemas holds the JSON Schemas of the documents that curfew prints and serves.
package schemas

import "embed"

// Files are the schemas, by the names of the documents: "keeps.v1.json" is curfew.keeps/v1.
//
//go:embed *.v1.json
var Files embed.FS
