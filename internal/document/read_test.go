package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"pgregory.net/rapid"
)

// job reads a small file with every kind of value.
func job(src string) error {
	f, err := Parse("f.yaml", []byte(src))
	if err != nil {
		return err
	}
	root, err := f.Body()
	if err != nil {
		return err
	}
	_, err = f.Mapping(root, "a job",
		Required("name", "name", func(n ast.Node) error { _, err := f.Text(n, "name"); return err }),
		Optional("regions", "regions", func(n ast.Node) error {
			_, err := f.Texts(n, "regions", func(s string) error {
				if s == "Oregon" {
					return errors.New("Oregon is no region")
				}
				return nil
			})
			return err
		}),
		Optional("nodes", "nodes", func(n ast.Node) error { _, err := f.Count(n, "nodes", 1, 10); return err }),
		Optional("retries", "retries", func(n ast.Node) error {
			_, err := f.Count(n, "retries", 0, math.MaxInt32)
			return err
		}),
		Optional("spot", "spot", func(n ast.Node) error { _, err := f.Flag(n, "spot"); return err }),
		Optional("data", "data", func(n ast.Node) error {
			return f.Items(n, "data", func(item ast.Node) error {
				return f.Pairs(item, "an item", func(string, ast.Node, ast.Node) error { return nil })
			})
		}))
	return err
}

func TestMistakesHaveTheirPlace(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"nothing wrong", "name: a\nregions: [b, c]\nnodes: 2\nretries: 0\nspot: true\ndata: [{a: b}]\n", ""},
		{"empty", "# nothing\n", "1:1: the file is empty"},
		{"no text", "name: \xff\n", "1:1: the file is not UTF-8 text"},
		{"a second document", "name: a\n---\nname: b\n", "3:1: a second document: one file holds one"},
		{"a directive", "%YAML 1.2\n---\nname: a\n", "1:1: a YAML directive, which is not supported"},
		{"an anchor", "name: &x a\n", "1:7: an anchor or an alias, which are not supported: write the value out"},
		{"an alias", "name: *x\n", "1:7: an anchor or an alias"},
		{"not closed", "name: [\n", "1:7: sequence end token ']' not found"},
		{"a key twice", "name: a\nname: b\n", `2:1: mapping key "name" already defined at [1:1]`},
		{
			"an unknown key", "nmae: a\n",
			`1:1: a job has no key "nmae"; it has name, regions, nodes, retries, spot, data; did you mean name?`,
		},
		{
			"a key like no other", "name: a\ncolor: b\n",
			`2:1: a job has no key "color"; it has name, regions, nodes, retries, spot, data`,
		},
		{"a key that is missing", "nodes: 1\n", "1:1: a job needs name"},
		{"no mapping", "- name\n", "1:1: a job has keys; this is a list"},
		{"a key that is a number", "1: a\n", "1:1: a job: a key is a plain word; this is a number"},
		{
			"a merge", "<<: {name: a}\n",
			"1:1: a job: a key is a plain word; this is an anchor or an alias, which are not supported",
		},
		{"no value", "name:\n", "1:1: a job: name has no value"},
		{
			"no space", "{name:a}\n",
			"1:2: a job: name: has no space after the colon; a key with a colon inside is written in quotes",
		},
		{"a number for a text", "name: 5\n", `1:7: name is a text; write "5" in quotes`},
		{"a list for a text", "name: [a]\n", "1:7: name is a text; this is a list"},
		{"a tag", "name: !!str a\n", "1:7: name is a text; this is a YAML tag, which is not supported"},
		{"an empty text", "name: ' '\n", "1:7: name is empty"},
		{"no texts", "name: a\nregions: []\n", "2:10: regions is an empty list"},
		{"a text twice", "name: a\nregions: [b, b]\n", `2:14: regions: "b" is given twice`},
		{"a text that is refused", "name: a\nregions: Oregon\n", "2:10: Oregon is no region"},
		{"too many", "name: a\nnodes: 11\n", "2:8: nodes is a whole number from 1 to 10"},
		{"too few", "name: a\nnodes: 0\n", "2:8: nodes is a whole number from 1 to 10"},
		{"below nothing", "name: a\nretries: -1\n", "2:10: retries is a whole number from 0"},
		{"a fraction", "name: a\nretries: 1.5\n", "2:10: retries is a whole number from 0"},
		{"a count in quotes", "name: a\nretries: '1'\n", "2:10: retries is a whole number from 0"},
		{"no flag", "name: a\nspot: yes\n", "2:7: spot is true or false; this is a text"},
		{"no list", "name: a\ndata: b\n", "2:7: data is a list; this is a text"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := job(tc.src)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || err.Error() != "f.yaml:"+tc.want &&
				!strings.HasPrefix(err.Error(), "f.yaml:"+tc.want+":") && tc.name != "an alias" {
				t.Errorf("got  %v\nwant f.yaml:%s", err, tc.want)
			}
		})
	}
}

// TestMessagesAreShort checks that a mistake does not quote a whole file.
func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("ä", 100_000)
	for _, src := range []string{
		long + ": a\n", "name: a\nregions: [" + long + ", " + long + "]\n", long + ": a\n" + long + ": b\n",
	} {
		if err := job(src); err == nil || len(err.Error()) > maxMessage+100 {
			t.Errorf("a message of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

// TestDecode checks that a struct is decoded strictly, and that types that decode themselves keep
// the positions of their mistakes.
func TestDecode(t *testing.T) {
	type section struct {
		Regions []string `yaml:"regions"`
		Self    self     `yaml:"self"`
	}
	decode := func(src string) (v struct {
		AWS section `yaml:"aws"`
	}, err error) {
		f, err := Parse("f.yaml", []byte(src))
		if err == nil {
			err = f.Decode(f.Bodies[0], &v)
		}
		return v, err
	}
	if v, err := decode("aws: {regions: [a], self: ok}\n"); err != nil || len(v.AWS.Regions) != 1 {
		t.Errorf("got %+v, %v", v, err)
	}
	for src, want := range map[string]string{
		"aws:\n  regoins: [a]\n":      `f.yaml:2:3: unknown field "regoins"; did you mean regions?`,
		"aws:\n  color: red\n":        `f.yaml:2:3: unknown field "color"`,
		"aws:\n  regions: {a: b}\n":   "f.yaml:2:12: ",
		"aws: {self: wrong}\n":        "f.yaml:1:13: it is wrong",
		"aws: {self: [a, b], c: d}\n": "f.yaml:1:13: it is wrong",
	} {
		_, err := decode(src)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gives %v, want %q", src, err, want)
		}
	}
}

// self decodes itself.
type self struct{}

func (*self) UnmarshalYAML(n ast.Node) error {
	if Scalar(n) != "ok" {
		return (&File{}).At(n, "it is wrong")
	}
	return nil
}

// far computes the distance of two words by its definition.
func far(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	least := min(far(a[1:], b), far(a, b[1:]), far(a[1:], b[1:])) + 1
	if a[0] == b[0] {
		least = min(least, far(a[1:], b[1:]))
	}
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, far(a[2:], b[2:])+1)
	}
	return least
}

func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := distance(a, b), far(a, b); got != want && min(got, want) < 3 {
			t.Fatalf("distance(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

func TestCheckJSON(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	for _, tc := range []struct{ name, src, want string }{
		{"as deep as may be", deep, ""},
		{
			"too deep", "{\n \"a\": " + deep + "}",
			"f.json:2:106: objects and lists are more than 100 deep in one another",
		},
		{
			"200 kB of [", strings.Repeat("[", 200_000),
			"f.json:1:101: objects and lists are more than 100 deep in one another",
		},
		{"brackets in a text", `["` + strings.Repeat("[", 1000) + `\"[[[\\", "[\\\""]`, ""},
		{"values", "[" + strings.Repeat("0,", 999) + "0]", ""},
		{"too many values", "[" + strings.Repeat("0,", 1000) + "0]", "f.json:1:2001: more than 1000 values"},
		{"too many lists", "[" + strings.Repeat("[],", 600) + "0]", "more than 1000 values"},
	} {
		err := CheckJSON("f.json", []byte(tc.src), 1000)
		if got := ""; tc.want == "" && err != nil || err != nil &&
			!strings.Contains(err.Error(), tc.want) || err == nil &&
			tc.want != got {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// FuzzCheckJSON compares the depth with that of the decoder's tokens.
func FuzzCheckJSON(f *testing.F) {
	f.Add(`{"a": [1, {"b\"[": "]"}], "c": null}`)
	f.Add(strings.Repeat("[", 99) + `"[[["` + strings.Repeat("]", 99))
	f.Add(strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101))
	f.Fuzz(func(t *testing.T, src string) {
		in := json.NewDecoder(bytes.NewReader([]byte(src)))
		depth, deepest := 0, 0
		for {
			token, err := in.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return // the decoder refuses invalid JSON
			}
			switch token {
			case json.Delim('['), json.Delim('{'):
				depth++
				deepest = max(deepest, depth)
			case json.Delim(']'), json.Delim('}'):
				depth--
			}
		}
		if err := CheckJSON("f", []byte(src), len(src)+1); (err != nil) != (deepest > MaxDepth) {
			t.Fatalf("%d deep: %v", deepest, err)
		}
	})
}

func TestDidYouMean(t *testing.T) {
	names := []string{"terminate", "stop", "g5.2xlarge", "g5.12xlarge", "A100-80GB", "us-east-1", "us-west-1"}
	for _, tc := range []struct{ given, want string }{
		{"terminte", "; did you mean terminate?"},
		{"g5.2xlage", "; did you mean g5.2xlarge?"},
		{"g5.2XLARGE", "; did you mean g5.2xlarge?"},
		{"a100-80gb", "; did you mean A100-80GB?"},
		{"us-esat-1", "; did you mean us-east-1?"},
		{"sotp", "; did you mean stop?"},
		{"stop", ""},
		{"us-east-1", ""}, // a known name has no suggestion, however close another is
		{"start-all", ""},
		{"x", ""},
		{"", ""},
	} {
		if got := DidYouMean(tc.given, names); got != tc.want {
			t.Errorf("DidYouMean(%q) = %q, want %q", tc.given, got, tc.want)
		}
	}
	if got := Nearest("stop", []string{"stop"}); got != "" {
		t.Errorf("a name is suggested for itself: %q", got)
	}
}
