package aws

import (
	"bytes"
	"strings"
	"testing"
)

func TestPluginVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"1.2.497.0": false, "1.2.498.0": true, "1.2.707.0": true, "1.2.54.0": false,
		"1.1.999.0": false, "1.3.0.0": true,
		"2.0": true, "": true, "next": true,
	} {
		if got := (Plugin{Version: version}).byEnvironment(); got != want {
			t.Errorf("version %q takes the answer from the environment: %v, want %v", version, got, want)
		}
	}
}

func TestInstallPlugin(t *testing.T) {
	for _, tc := range []struct {
		system, arch string
		debian       bool
		want         string
	}{
		{"darwin", "arm64", false, "brew install --cask session-manager-plugin"},
		{"linux", "amd64", true, "/ubuntu_64bit/session-manager-plugin.deb && sudo dpkg -i "},
		{"linux", "arm64", true, "/ubuntu_arm64/session-manager-plugin.deb"},
		{
			"linux", "amd64", false,
			"sudo dnf install -y https://s3.amazonaws.com/session-manager-downloads/plugin/latest/linux_64bit/session-manager-plugin.rpm",
		},
		{"linux", "arm64", false, "/linux_arm64/session-manager-plugin.rpm"},
		{"windows", "amd64", false, "winget "},
	} {
		if got := installPlugin(tc.system, tc.arch, tc.debian); !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %q", tc.system, tc.arch, got)
		}
	}
}

// TestReadsOutputInPieces checks that the output does not depend on how the terminal's bytes are
// split.
func TestReadsOutputInPieces(t *testing.T) {
	const word = "curfew-0a"
	for _, tc := range []struct {
		name, shown, want string
		code              int
		done              bool
	}{
		{"nothing", "$ " + word + " -begin'\r\n\n" + word + "-begin\n" + word + "-end:0\n", "", 0, true},
		{"lines", "motd\n" + word + "-begin\r\na\nb\n" + word + "-end:3\r\n", "a\nb\n", 3, true},
		{"no last newline", word + "-begin\nab" + word + "-end:255\n$ exit", "ab", 255, true},
		{
			"what looks like the end", word + "-begin\n\n" + word + "-en" + word + "-end:0\n", "\n" + word + "-en", 0,
			true,
		},
		{"newlines", word + "-begin\n\n\n\n" + word + "-end:0\n", "\n\n\n", 0, true},
		{"a line that is waited for", word + "-begin\nab\n", "ab\n", 0, false},
		{"never began", "$ curfew: not found\n", "", 0, false},
	} {
		for size := 1; size <= len(tc.shown); size++ {
			var out bytes.Buffer
			r := newTyped(word, &out)
			for rest := tc.shown; rest != ""; {
				n := min(size, len(rest))
				if _, err := r.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			code, done := r.result()
			if got := out.String(); got != tc.want || code != tc.code || done != tc.done {
				t.Errorf("%s in parts of %d: got %q, %d, %v", tc.name, size, got, code, done)
			}
		}
	}
}

// TestIgnoresTerminalEcho checks that the terminal's echo of the first typed line is not mistaken
// for output.
func TestIgnoresTerminalEcho(t *testing.T) {
	r := newTyped("curfew-0a", nil)
	if line := r.begin(); strings.Contains(line, "curfew-0a-begin") || strings.Contains(line, "curfew-0a-end") ||
		strings.Count(line, "\n") != 1 || len(line) > typedLine {
		t.Errorf("the line is %q", line)
	}
}
