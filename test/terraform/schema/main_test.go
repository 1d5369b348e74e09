package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestRead parses a resource in the form of the package, with every kind of argument.
func TestRead(t *testing.T) {
	name, got, err := read("testdata/package/lib/sample")
	if err != nil || name != "aws_sample" {
		t.Fatal(name, err)
	}
	want := Block{
		Attributes: map[string]Attribute{
			"name":  {Type: "string", Required: true},
			"zones": {Type: []any{"list", "string"}, Optional: true, Computed: true},
			"tags":  {Type: []any{"map", "string"}, Optional: true, Computed: true},
			"ingress": {
				Type: []any{"set", []any{"object", map[string]any{"ports": []any{"set", "number"}}}}, Optional: true,
				Computed: true,
			},
			"arn":   {Type: "string", Computed: true},
			"names": {Type: []any{"set", "string"}, Computed: true},
			"id":    {Type: "string", Computed: true},
		},
		BlockTypes: map[string]Nested{
			"disk": {
				Mode: "list", MaxItems: 1,
				Block: Block{
					Attributes: map[string]Attribute{"size": {Type: "number", Optional: true, Computed: true}},
				},
			},
			"rule": {
				Mode: "set", MinItems: 1, Block: Block{
					Attributes: map[string]Attribute{"id": {Type: "string", Required: true}},
				},
			},
			"timeouts": {
				Mode: "single",
				Block: Block{
					Attributes: map[string]Attribute{"create": {Type: "string", Optional: true, Computed: true}},
				},
			},
		},
	}
	text := func(b Block) string {
		raw, err := json.MarshalIndent(b, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if g, w := text(got.Block), text(want); g != w {
		t.Errorf("%s\nwant\n%s", g, w)
	}
}

// TestUnreadable checks that another form is an error and nothing is guessed.
func TestUnreadable(t *testing.T) {
	for name, change := range map[string][2]string{
		"another type":   {`storageClassType: "number"`, `storageClassType: "duration"`},
		"another layout": {`isBlock: false`, `isBlock: maybe`},
		"no structure":   {`function sampleDiskTo`, `function otherDiskTo`},
		"another nesting": {
			`type: "set",` + "\n" + `                storageClassType: "SampleRuleList"`,
			`type: "tuple",` + "\n" + `                storageClassType: "SampleRuleList"`,
		},
		"another resource": {`terraformResourceType: 'aws_sample'`, `kind: 'aws_sample'`},
	} {
		dir := t.TempDir()
		for _, f := range []string{"index.js", "index.d.ts"} {
			raw, err := os.ReadFile(filepath.Join("testdata/package/lib/sample", f))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(raw), change[0], change[1])
			if f == "index.js" && text == string(raw) {
				t.Fatalf("%s: nothing to change", name)
			}
			if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := read(dir); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// TestCommittedSchema compares the committed schema with the list of resources that the generator
// reads.
func TestCommittedSchema(t *testing.T) {
	raw, err := os.ReadFile("../provider/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	names := func(m map[string]Resource) map[string]bool {
		out := map[string]bool{}
		for name := range m {
			out[name] = true
		}
		return out
	}
	wanted := func(folders []string) map[string]bool {
		out := map[string]bool{}
		for _, f := range folders {
			name := strings.ReplaceAll(strings.TrimPrefix(f, "data-aws-"), "-", "_")
			out["aws_"+name] = true
		}
		return out
	}
	if got, want := names(s.Resources), wanted(resources); !reflect.DeepEqual(got, want) {
		t.Errorf("resources %v, want %v", got, want)
	}
	if got, want := names(s.DataSources), wanted(data); !reflect.DeepEqual(got, want) {
		t.Errorf("data sources %v, want %v", got, want)
	}
}
