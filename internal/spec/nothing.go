package spec

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed nothing.txt
var nothingText string

// runsNothing holds the reviewed kinds that run no pod or machine themselves; see nothing.txt.
var runsNothing = sync.OnceValue(func() map[kind]bool {
	out := map[kind]bool{}
	for line := range strings.Lines(nothingText) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		group, names, _ := strings.Cut(line, ":")
		if group == "core" {
			group = ""
		}
		for _, name := range strings.Fields(names) {
			out[kind{group, name}] = true
		}
	}
	return out
})
