package checkpoint

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const attempt = "3-00112233445566aa"

// manifest returns a valid manifest for mutation.
func manifest() Manifest {
	sum := strings.Repeat("ab", 32)
	return Manifest{Schema: Schema, Seq: 7, Epoch: 3, Attempt: attempt, State: Complete, Finished: Declared,
		Parts: []Part{{partKey(attempt, sum), 100, sum, "00000000"}},
		Entries: []Entry{
			{Path: "a", Kind: Folder, Mode: 0o755},
			{Path: "a/f", Kind: File, Mode: 0o644, Size: 60, Chunks: []Chunk{{sum, 60, 0, 10, 50, true}}},
			{Path: "a/l", Kind: Symlink, Target: "/anywhere"},
			{Path: "h", Kind: Hardlink, Target: "a/f"},
		}}
}

func TestChecksManifests(t *testing.T) {
	chunk := func(m *Manifest) *Chunk { return &m.Entries[1].Chunks[0] }
	for name, edit := range map[string]func(*Manifest){
		"right":                    func(*Manifest) {},
		"no entries":               func(m *Manifest) { m.Entries, m.Parts = nil, nil },
		"bad: schema":              func(m *Manifest) { m.Schema = "curfew.checkpoint/v2" },
		"bad: state":               func(m *Manifest) { m.State = "whole" },
		"bad: proof":               func(m *Manifest) { m.Entries[1].Finished = "sworn" },
		"bad: above":               func(m *Manifest) { m.Entries[1].Path = "../f" },
		"bad: above within":        func(m *Manifest) { m.Entries[1].Path = "a/../../f" },
		"bad: absolute":            func(m *Manifest) { m.Entries[1].Path = "/etc/passwd" },
		"bad: dot":                 func(m *Manifest) { m.Entries[0].Path = "." },
		"bad: empty":               func(m *Manifest) { m.Entries[1].Path = "" },
		"bad: NUL":                 func(m *Manifest) { m.Entries[1].Path = "a/\x00" },
		"bad: not clean":           func(m *Manifest) { m.Entries[1].Path = "a//f" },
		"bad: no folder":           func(m *Manifest) { m.Entries[1].Path = "b/f" },
		"bad: through a link":      func(m *Manifest) { m.Entries[3].Path = "a/l/h" },
		"bad: through a file":      func(m *Manifest) { m.Entries[3].Path = "a/f/h" },
		"bad: twice":               func(m *Manifest) { m.Entries[3].Path = "a/f" },
		"bad: link to a link":      func(m *Manifest) { m.Entries[3].Target = "a/l" },
		"bad: link out":            func(m *Manifest) { m.Entries[3].Target = "../x" },
		"bad: link without target": func(m *Manifest) { m.Entries[2].Target = "" },
		"bad: kind":                func(m *Manifest) { m.Entries[1].Kind = "device" },
		"bad: mode":                func(m *Manifest) { m.Entries[1].Mode = 0o4755 },
		"bad: size":                func(m *Manifest) { m.Entries[1].Size = 61 },
		"bad: negative size":       func(m *Manifest) { m.Entries[1].Size, chunk(m).Size = -1, -1 },
		"bad: folder with content": func(m *Manifest) { m.Entries[0].Size = 1 },
		"bad: part":                func(m *Manifest) { chunk(m).Part = 1 },
		"bad: part below zero":     func(m *Manifest) { chunk(m).Part = -1 },
		"bad: offset":              func(m *Manifest) { chunk(m).Offset = 51 },
		"bad: offset overflows":    func(m *Manifest) { chunk(m).Offset = 1<<63 - 1 },
		"bad: stored":              func(m *Manifest) { chunk(m).Stored = 0 },
		"bad: raw of other size":   func(m *Manifest) { chunk(m).Zstd = false },
		"bad: large chunk":         func(m *Manifest) { chunk(m).Size, m.Entries[1].Size = chunkMax+1, chunkMax+1 },
		"bad: large part":          func(m *Manifest) { m.Parts[0].Size = MaxPart + 1 },
		"bad: part elsewhere":      func(m *Manifest) { m.Parts[0].Key = "HEAD" },
		"bad: part above":          func(m *Manifest) { m.Parts[0].Key = "parts/../" + m.Parts[0].Key },
		"bad: nodes and entries":   func(m *Manifest) { m.Nodes, m.Ranks = []Node{{}}, 1 },
		"bad: rank":                func(m *Manifest) { m.Ranks = 2; m.Rank = new(int); *m.Rank = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			edit(&m)
			data, key, err := encodeManifest(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeManifest(key, data)
			if bad := strings.HasPrefix(name, "bad: "); bad != errors.Is(err, ErrDamaged) {
				t.Fatalf("decode: %+v, %v", got, err)
			}
			// Every bit flip is detected.
			for i := range data {
				data[i] ^= 1
				if _, err := DecodeManifest(key, data); !errors.Is(err, ErrDamaged) {
					t.Fatalf("byte %d: %v", i, err)
				}
				data[i] ^= 1
			}
		})
	}
}

func head() Head {
	sum := strings.Repeat("cd", 32)
	snapshot := func(seq int64) Snapshot {
		return Snapshot{Seq: seq, Epoch: 3, At: time.Unix(seq, 0).UTC(), State: Complete, Finished: Exited,
			Manifest: manifestKey{seq: seq, attempt: attempt, sum: sum, rank: -1}.String(), SHA256: sum}
	}
	return Head{
		Schema: Schema, Revision: 9, Epoch: 3, Attempt: attempt, Snapshots: []Snapshot{snapshot(8), snapshot(6)},
	}
}

func TestChecksHeads(t *testing.T) {
	for name, edit := range map[string]func(*Head){
		"right":             func(*Head) {},
		"empty":             func(h *Head) { h.Snapshots = nil },
		"bad: schema":       func(h *Head) { h.Schema = "" },
		"bad: epoch":        func(h *Head) { h.Epoch = 4 },
		"bad: attempt":      func(h *Head) { h.Attempt = "3-x" },
		"bad: order":        func(h *Head) { h.Snapshots[0], h.Snapshots[1] = h.Snapshots[1], h.Snapshots[0] },
		"bad: twice":        func(h *Head) { h.Snapshots[1] = h.Snapshots[0] },
		"bad: manifest":     func(h *Head) { h.Snapshots[0].Manifest = "parts/x" },
		"bad: SHA-256":      func(h *Head) { h.Snapshots[0].SHA256 = strings.Repeat("0", 64) },
		"bad: later epoch":  func(h *Head) { h.Snapshots[0].Epoch = 4 },
		"bad: state":        func(h *Head) { h.Snapshots[0].State = "" },
		"bad: no revision":  func(h *Head) { h.Revision = 0 },
		"bad: bytes":        func(h *Head) { h.Snapshots[0].Bytes = -1 },
		"bad: other number": func(h *Head) { h.Snapshots[0].Seq = 9 },
	} {
		t.Run(name, func(t *testing.T) {
			h := head()
			edit(&h)
			data, err := encodeHead(h)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeHead(data)
			if bad := strings.HasPrefix(name, "bad: "); bad != errors.Is(err, ErrDamaged) {
				t.Fatalf("decode: %+v, %v", got, err)
			}
			for i := range data {
				data[i] ^= 4
				if _, err := DecodeHead(data); !errors.Is(err, ErrDamaged) {
					t.Fatalf("byte %d: %v", i, err)
				}
				data[i] ^= 4
			}
		})
	}
}

// FuzzHead checks that a decoded HEAD encodes again.
func FuzzHead(f *testing.F) {
	good, err := encodeHead(head())
	if err != nil {
		f.Fatal(err)
	}
	line, _, _ := bytes.Cut(good, []byte("\n"))
	f.Add(line)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		line = append(bytes.Clone(line), '\n')
		h, err := DecodeHead(append(bytes.Clone(line), hash(line)+"\n"...))
		if err != nil {
			return
		}
		data, err := encodeHead(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeHead(data); err != nil {
			t.Fatalf("written again: %v", err)
		}
	})
}

// FuzzDocument compares jsonReader with encoding/json.
func FuzzDocument(f *testing.F) {
	m, err := json.Marshal(manifest())
	if err != nil {
		f.Fatal(err)
	}
	h, err := json.Marshal(head())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m)
	f.Add(h)
	f.Add([]byte(`{"writer":"\"\\\u00e9é\ud83d\ude00","entries":null,"step":-3}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		m, err := newJSONReader(bytes.NewReader(doc), MaxHead, maxDecoded).manifest()
		if err == nil {
			sameJSON(t, doc, m)
		}
		h, err := newJSONReader(bytes.NewReader(doc), MaxHead, maxDecoded).head()
		if err == nil {
			sameJSON(t, doc, h)
		}
	})
}

// sameJSON checks that encoding/json decodes the document to the same value.
func sameJSON[T any](t *testing.T, doc []byte, got T) {
	t.Helper()
	var want T
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	x, err := json.Marshal(got)
	if err != nil {
		return // a time that RFC 3339 cannot write
	}
	if y, err := json.Marshal(want); err != nil || !bytes.Equal(x, y) {
		t.Fatalf("%s\n%s, %v", x, y, err)
	}
	switch any(got).(type) {
	case Manifest:
		_, err = newJSONReader(bytes.NewReader(x), MaxHead, maxDecoded).manifest()
	case Head:
		_, err = newJSONReader(bytes.NewReader(x), MaxHead, maxDecoded).head()
	}
	if err != nil {
		t.Fatalf("written again: %v\n%s", err, x)
	}
}

// FuzzManifest checks that paths stay in the folder and chunks in their part.
func FuzzManifest(f *testing.F) {
	good, err := json.Marshal(manifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.ReplaceAll(good, []byte(`"a/f"`), []byte(`"../f"`)))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(doc)
		_ = z.Close()
		key := manifestKey{seq: 7, attempt: attempt, sum: hash(b.Bytes()), rank: -1}.String()
		m, err := DecodeManifest(key, b.Bytes())
		if err != nil {
			return
		}
		for _, e := range m.Entries {
			if !filepath.IsLocal(filepath.FromSlash(e.Path)) || e.Kind == Hardlink &&
				!filepath.IsLocal(filepath.FromSlash(e.Target)) {
				t.Fatalf("%q leads out of the folder", e.Path)
			}
			for _, c := range e.Chunks {
				if size := m.Parts[c.Part].Size; c.Offset < 0 || c.Stored < 0 || c.Offset > size ||
					c.Stored > size-c.Offset {
					t.Fatalf("%d bytes at %d of a part of %d", c.Stored, c.Offset, size)
				}
			}
		}
	})
}

// FuzzEvents checks that truncated events never count before their newline, and that appending
// never removes an event.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"event":"step","step":1,"at":"2026-01-02T03:04:05Z"}`+"\n"+
		`{"event":"saved","path":"x","step":1,"at":"2026-01-02T03:04:05Z"}`+"\n"+`{"event":`), 80)
	f.Add(append(bytes.Repeat([]byte("x"), maxEventLine+10), '\n'), 3)
	f.Add(bytes.Repeat([]byte("x"), maxEventLine+10), maxEventLine+1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var whole, cutOff EventReader
		err := whole.parse(bytes.NewReader(data))
		all := whole.events
		if err != nil {
			t.Fatal(err)
		}
		if cut < 0 || cut > len(data) {
			return
		}
		err = cutOff.parse(bytes.NewReader(data[:cut]))
		some := cutOff.events
		if err != nil {
			t.Fatal(err)
		}
		if len(some.Saved) > len(all.Saved) || fmt.Sprint(all.Saved[:len(some.Saved)]) != fmt.Sprint(some.Saved) &&
			len(some.Saved) > 0 && some.Saved[0].Step == nil {
			t.Fatalf("%+v, cut off %+v", all, some)
		}
		if n := bytes.Count(data, []byte("\n")); len(all.Saved)+all.InvalidLines > n {
			t.Fatalf("%d lines are %+v", n, all)
		}
	})
}
