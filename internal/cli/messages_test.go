package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// quotedCommand is a command that a message tells people to run.
	quotedCommand = regexp.MustCompile("`(curfew(?: [^`]*)?)`")
	// commandWord is the name of a command.
	commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
	// flagWord is a flag with or without its value.
	flagWord = regexp.MustCompile(`^\[?(--?[a-zA-Z][a-z0-9-]*)`)
)

// wrongCommand says what of a command does not exist: a command, or a flag of it.
func wrongCommand(root *cobra.Command, text string) string {
	c, words := root, strings.Fields(text)[1:]
	for len(words) > 0 && commandWord.MatchString(words[0]) {
		var next *cobra.Command
		for _, sub := range c.Commands() {
			if sub.Name() == words[0] || sub.HasAlias(words[0]) {
				next = sub
			}
		}
		if next == nil {
			if c.HasSubCommands() {
				return "there is no command " + c.CommandPath() + " " + words[0]
			}
			break
		}
		c, words = next, words[1:]
	}
	for _, word := range words {
		m := flagWord.FindStringSubmatch(strings.TrimRight(word, ".,;:)]"))
		if word == "--" {
			break // what follows is another program's
		}
		if m == nil {
			continue
		}
		name := strings.TrimLeft(m[1], "-")
		known := func(flags *pflag.FlagSet) bool {
			return flags.Lookup(name) != nil || len(name) == 1 && flags.ShorthandLookup(name) != nil
		}
		if name != "help" && name != "h" && name != "version" && !known(c.Flags()) && !known(c.InheritedFlags()) {
			return c.CommandPath() + " has no flag " + m[1]
		}
	}
	return ""
}

func TestWrongCommand(t *testing.T) {
	root := Commands()
	for text, want := range map[string]string{
		"curfew":                           "",
		"curfew scan --demo":               "",
		"curfew approve 12ab":              "",
		"curfew budget holds":              "",
		"curfew fix FINDING --enforce":     "",
		"curfew enforce --once -o json":    "",
		"curfew scan --config c.yaml":      "",
		"curfew budget reserve":            "there is no command curfew budget reserve",
		"curfew enforce --daemon":          "curfew enforce has no flag --daemon",
		"curfew daemon":                    "there is no command curfew daemon",
		"curfew ci run -- python --seed 7": "",
	} {
		if got := wrongCommand(root, text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestMessagesNameExistingCommands: whatever command a text of the program names between
// backquotes exists, with its flags.
func TestMessagesNameExistingCommands(t *testing.T) {
	root, found := Commands(), 0
	files := token.NewFileSet()
	for _, dir := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, is := n.(*ast.BasicLit)
				if !is || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range quotedCommand.FindAllStringSubmatch(text, -1) {
					found++
					if wrong := wrongCommand(root, m[1]); wrong != "" {
						t.Errorf("%s: %q: %s", files.Position(literal.Pos()), m[1], wrong)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found", found)
	}
}
