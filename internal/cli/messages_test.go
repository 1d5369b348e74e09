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
	// plainCommand is a command with flags in a text: an example, or a hint without quotes.
	plainCommand = regexp.MustCompile("\\bcurfew [a-z][^`\n#;|>]* --[^`\n#;|>]*")
	// commandWord is the name of a command.
	commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
	// flagWord is a flag with or without its value.
	flagWord = regexp.MustCompile(`^\[?(--?[a-zA-Z][a-z0-9-]*)`)
)

// child returns the command of a name below another one; nil: there is none.
func child(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}

// wrongCommand returns the part of a command that does not exist: a command or a flag.
func wrongCommand(root *cobra.Command, text string) string {
	c, words := root, strings.Fields(text)[1:]
	for i := range words {
		words[i] = strings.TrimRight(words[i], ".,;:)]")
	}
	for len(words) > 0 && commandWord.MatchString(words[0]) && words[0] != "curfew" {
		next := child(c, words[0])
		if next == nil {
			if c.HasSubCommands() {
				return "there is no command " + c.CommandPath() + " " + words[0]
			}
			break
		}
		c, words = next, words[1:]
	}
	for i, word := range words {
		m := flagWord.FindStringSubmatch(word)
		switch {
		case word == "--": // the rest belongs to another program
			return ""
		// another command of the same sentence
		case word == "curfew" && i+1 < len(words) && child(root, words[i+1]) != nil:
			return wrongCommand(root, strings.Join(words[i:], " "))
		case strings.HasPrefix(word, "%") && c.HasSubCommands(): // one of several commands
			return ""
		case m == nil:
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
		"curfew":                                           "",
		"curfew scan --demo":                               "",
		"curfew approve 12ab":                              "",
		"curfew budget holds":                              "",
		"curfew fix FINDING --enforce":                     "",
		"curfew enforce --once -o json":                    "",
		"curfew scan --config c.yaml":                      "",
		"curfew budget reserve":                            "there is no command curfew budget reserve",
		"curfew enforce --daemon":                          "curfew enforce has no flag --daemon",
		"curfew daemon":                                    "there is no command curfew daemon",
		"curfew policy check, then curfew enforce --often": "curfew enforce has no flag --often",
		"curfew plan capacity: give --qps":                 "",
		"curfew plan %s --from %q":                         "",
		"curfew ci run -- python --seed 7":                 "",
	} {
		if got := wrongCommand(root, text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestMessagesNameExistingCommands checks that whatever command a text of the program names,
// between backquotes or with flags, exists with these flags.
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
				check := func(command string) {
					found++
					if wrong := wrongCommand(root, command); wrong != "" {
						t.Errorf("%s: %q: %s", files.Position(literal.Pos()), command, wrong)
					}
				}
				for _, m := range quotedCommand.FindAllStringSubmatch(text, -1) {
					check(m[1])
				}
				for _, command := range plainCommand.FindAllString(quotedCommand.ReplaceAllString(text, ""), -1) {
					check(command)
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
