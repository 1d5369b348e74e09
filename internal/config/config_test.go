package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/document"
)

func TestMistakesHaveTheirPlace(t *testing.T) {
	for _, tc := range []struct {
		name, src string
		line      int
		column    int
		message   string
	}{
		{name: "unknown key", src: "aws:\n  region: us-east-1\n", line: 2, column: 3, message: "unknown field"},
		{name: "unknown key at the top", src: "regions: [a]\n", line: 1, column: 1, message: "unknown field"},
		{name: "mistyped safety key", src: "duty:\n  min_windw: 2h\n", line: 2, column: 3, message: "unknown field"},
		{name: "repeated key", src: "data_dir: a\ndata_dir: b\n", line: 2, column: 1, message: "already defined"},
		{name: "not YAML", src: "aws: [\n", line: 1, column: 6, message: "not"},
		{name: "wrong type", src: "aws:\n  list_pages: many\n", line: 2, column: 15, message: "cannot unmarshal"},
		{name: "not a duration", src: "scan:\n  window: 14 days\n", line: 2, column: 11, message: "is not a duration"},
		{name: "zero window", src: "scan:\n  window: 0d\n", line: 2, column: 11, message: "more than zero"},
		{name: "negative pages", src: "aws: {list_pages: -1}\n", line: 1, column: 19, message: "more than zero"},
		{
			name: "approvers that look alike",
			src:  "approvers:\n  ana: [approver]\n  аna: [approver]\n", line: 2, column: 3,
			message: "look the same",
		},
		{
			name: "an approver like a person",
			src:  "approvers: {bo: [approver]}\npeople: {b0: {}}\n", line: 2, column: 9,
			message: "look the same",
		},
		{
			name:   "one identity of two",
			src:    "people:\n  ana: {aws: [\"arn:aws:iam::1:user/x\"]}\n  bo: {aws: [\"arn:aws:iam::1:user/x\"]}\n",
			line:   2,
			column: 3, message: "is of ana and of bo",
		},
		{name: "not an ARN", src: "people: {ana: {aws: [ana]}}\n", line: 1, column: 22, message: "is no ARN"},
		{
			name: "a pattern of ARNs", src: "people: {ana: {aws: [\"arn:aws:iam::1:user/*\"]}}\n", line: 1, column: 22,
			message: "is no ARN",
		},
		{
			name: "another proof", src: "approvals:\n  accept: [anything]\n", line: 2, column: 11,
			message: "self-declared",
		},
		{
			name: "an STS at another host",
			src:  "approvals:\n  sts_endpoint: https://sts.example.com\n", line: 2, column: 17,
			message: "pinned",
		},
		{
			name: "a GitHub without TLS", src: "approvals:\n  github_api: http://github.example.com/api/v3\n", line: 2,
			column: 15, message: "base URL of a REST API",
		},
		{
			name: "second document", src: "data_dir: a\n---\ndata_dir: b\n", line: 3, column: 1,
			message: "second document",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			err := Decode("curfew.yaml", []byte(tc.src), &c)
			var e *document.Error
			if !errors.As(err, &e) {
				t.Fatalf("Decode: got %v, want a *document.Error", err)
			}
			if e.Line != tc.line || e.Column != tc.column || !strings.Contains(e.Message, tc.message) {
				t.Errorf("Decode: got %q, want %d:%d with %q", e, tc.line, tc.column, tc.message)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	for _, src := range []string{"", "# only a comment\n", "{}\n", "---\n"} {
		c := Default()
		if err := Decode("curfew.yaml", []byte(src), &c); err != nil {
			t.Errorf("Decode(%q): %v", src, err)
		}
	}
	c := Default()
	err := Decode("curfew.yaml",
		[]byte("scan: {window: 1w}\ntags:\n  team: [squad-name]\naws:\n  regions: [us-east-1, eu-west-1]\n"), &c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Scan.Window != 7*24*time.Hour || len(c.AWS.Regions) != 2 || c.Tags.Team[0] != "squad-name" {
		t.Errorf("Decode gave %+v", c)
	}
	if len(c.Tags.Project) == 0 || c.AWS.ListPages != Default().AWS.ListPages {
		t.Error("keys that the file leaves out lost their defaults")
	}
}

func TestEnvironmentOverrides(t *testing.T) {
	env := map[string]string{
		"CURFEW_AWS_REGIONS": "us-west-2, eu-west-1", "CURFEW_SCAN_WINDOW": "3d", "CURFEW_AWS_LIST_PAGES": "9",
	}
	c, err := Load("", func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	if c.Scan.Window != 72*time.Hour || c.AWS.ListPages != 9 || len(c.AWS.Regions) != 2 ||
		c.AWS.Regions[1] != "eu-west-1" {
		t.Errorf("got %+v %+v", c.AWS, c.Scan)
	}
	for name, value := range map[string]string{
		"CURFEW_SCAN_WINDOW": "soon", "CURFEW_AWS_LIST_PAGES": "0", "CURFEW_AWS_REQUESTS_PER_SECOND": "fast",
		"CURFEW_APPROVALS_ACCEPT": "self-declared", "CURFEW_APPROVALS_STS_ENDPOINT": "http://127.0.0.1:1",
		"CURFEW_PEOPLE": "{}"} {
		_, err := Load("", func(k string) (string, bool) { return value, k == name })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: got %v, want an error that names it", name, value, err)
		}
	}
}

func TestFindSearchesParents(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Find(deep, ""); got != "" {
		t.Errorf("Find without a file: got %q", got)
	}
	user := filepath.Join(root, "home")
	mine := filepath.Join(user, "curfew", FileName)
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Find(deep, user); got != mine {
		t.Errorf("Find: got %q, want the user's %q", got, mine)
	}
	want := filepath.Join(root, "a", FileName)
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Find(deep, user); got != want {
		t.Errorf("Find: got %q, want the nearest %q", got, want)
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"14d": 14 * 24 * time.Hour, "1w": 168 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute,
		"1.5d": 36 * time.Hour, "0s": 0,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "d", "14", "-2d", "1d-12h", "12 h", "1h1d", "99999999999d", "NaNd", "Infd"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", in, got)
		}
	}
}

func TestDurationsOfTheStandardLibraryAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "d"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("ParseDuration(%q) = %s, %v", d, got, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"", "aws: {regions: [a]}", "scan:\n  window: 14d\n", "duty: {", "a: &a [*a]", "? x\n: y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := Default()
		err := Decode("f.yaml", []byte(s), &c)
		var e *document.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%q: %v is not a *document.Error", s, err)
		}
		if err == nil {
			for _, l := range leaves(&c) {
				if err := l.check(); err != nil {
					t.Fatalf("%q passed with %s: %v", s, l.path, err)
				}
			}
		}
	})
}
