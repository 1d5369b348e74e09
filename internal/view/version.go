package view

// VersionSchema names the document of a program's version.
const VersionSchema = "curfew.version/v1"

// Version is the version of the program, and of what it was built with.
type Version struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Commit is the full hash of the source; absent where the build did not record it.
	Commit string `json:"commit,omitempty"`
	// Date is the time of the commit, RFC 3339; absent where the build did not record it.
	Date string `json:"date,omitempty"`
	// Modified is true where the source had changes that are in no commit.
	Modified bool `json:"modified,omitempty"`
	// Go is the version of the Go toolchain.
	Go string `json:"go"`
	// Platform is the operating system and the architecture: linux/amd64.
	Platform string `json:"platform"`
}
