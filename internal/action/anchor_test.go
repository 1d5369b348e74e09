package action_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/document"
)

// FuzzParseAnchor checks that whatever the text, only what the key has signed is accepted, and it
// says of the log what was signed. All other text is refused in one line with its file.
func FuzzParseAnchor(f *testing.F) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	end := action.Head{Entry: 9, Hash: strings.Repeat("0a", 32), First: strings.Repeat("f1", 32)}
	want := action.SignAnchor(end, time.Date(2026, 7, 1, 12, 0, 0, 7, time.UTC), key)
	forged := want
	forged.Entry = 7
	for _, a := range []action.Anchor{
		want, forged, action.SignAnchor(end, want.At, other), action.SignAnchor(action.Head{}, want.At, key),
	} {
		text, err := json.MarshalIndent(a, "", "  ")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(append(text, "{}"...))
		f.Add(bytes.ReplaceAll(text, []byte("Z"), []byte("+00:00")))
	}
	f.Add([]byte(strings.Repeat(`{"schema":`, 1000)))
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 16<<10 {
			return
		}
		got, err := action.ParseAnchor("anchor.json", src, key.Public().(ed25519.PublicKey))
		var bad *document.Error
		switch {
		case err == nil:
			got.At = got.At.UTC()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("accepted, and never signed (-signed +read):\n%s", diff)
			}
		case !errors.As(err, &bad) && !errors.Is(err, action.ErrUntrusted):
			t.Fatalf("neither no anchor nor untrusted: %v", err)
		case !strings.Contains(err.Error(), "anchor.json"):
			t.Fatalf("it names no file: %v", err)
		}
	})
}

// TestParseAnchor checks that the ways in which a text is refused are told apart.
func TestParseAnchor(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	public := key.Public().(ed25519.PublicKey)
	one := strings.Repeat("0a", 32)
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		end  action.Head
		key  ed25519.PrivateKey
		edit func(string) string
		want string
	}{
		{name: "the first entry", end: action.Head{Entry: 1, Hash: one, First: one}, key: key},
		{
			name: "a first entry with two hashes", end: action.Head{
				Entry: 1, Hash: one, First: strings.Repeat("0b", 32),
			},
			key: key, want: "it names no entry",
		},
		{name: "no entry", end: action.Head{Hash: one, First: one}, key: key, want: "it names no entry"},
		{
			name: "a hash in capitals", end: action.Head{Entry: 2, Hash: strings.ToUpper(one), First: one}, key: key,
			want: "it names no entry",
		},
		{
			name: "a short first hash", end: action.Head{Entry: 2, Hash: one, First: one[1:]}, key: key,
			want: "it names no entry",
		},
		{
			name: "another schema", end: action.Head{Entry: 2, Hash: one, First: one}, key: key,
			edit: func(s string) string {
				return strings.Replace(s, "anchor/v1", "anchor/v2", 1)
			}, want: "its schema is not"},
		{
			name: "another time", end: action.Head{Entry: 2, Hash: one, First: one}, key: key,
			edit: func(s string) string {
				return strings.Replace(s, "2026", "2027", 1)
			}, want: "its signature is wrong"},
		{
			name: "another key", end: action.Head{Entry: 2, Hash: one, First: one},
			key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize)), want: "signed with another key",
		},
	} {
		text, err := json.Marshal(action.SignAnchor(tc.end, at, tc.key))
		if err != nil {
			t.Fatal(err)
		}
		if tc.edit != nil {
			text = []byte(tc.edit(string(text)))
		}
		got, err := action.ParseAnchor("a.json", text, public)
		switch {
		case tc.want == "" && (err != nil || got.Head != tc.end || !got.At.Equal(at)):
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if got, err := action.ParseKey(action.KeyText(public)); err != nil || !got.Equal(public) {
		t.Errorf("a key read back is %v, %v", got, err)
	}
	for _, text := range []string{"", "ed25519:AAAA", "rsa:" + action.KeyText(public)} {
		if got, err := action.ParseKey(text); err == nil {
			t.Errorf("%q is the key %v", text, got)
		}
	}
}
