package layout

import "testing"

func TestInertEscapesFormulas(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"text", "gpu-held", "gpu-held"},
		{"empty", "", ""},
		{"formula", "=1+1", "'=1+1"},
		{"plus", "+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"},
		{"minus", "-2+3", "'-2+3"},
		{"at", "@SUM(A1)", "'@SUM(A1)"},
		{"tab", "\t=1", "'\t=1"},
		{"wide equals sign", "＝1", "'＝1"},
		{"negative number", "-12.50", "-12.50"},
		{"signed number", "+3", "+3"},
		{"a date is not a number", "-2026-07", "'-2026-07"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := inert(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMarkdownShowsNamesAsText(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"markup", "<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"},
		{"link", "[x](javascript:alert)", `\[x\](javascript:alert)`},
		{"bare address", "http://example.test", `http:\//example.test`},
		{"mention", "@everyone", `\@everyone`},
		{"lines", "a\n# b", `a \# b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := MarkdownText(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
