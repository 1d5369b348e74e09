package checkpoint_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// hostileRun is a run of two snapshots, the second of which an attacker with write access replaces.
type hostileRun struct {
	checkpoint.Run
	store, base string
	manifest    checkpoint.Manifest
	head        checkpoint.Head
}

func newHostileRun(t *testing.T) *hostileRun {
	t.Helper()
	base := t.TempDir()
	h := &hostileRun{store: filepath.Join(base, "store"), base: base}
	h.Run = run(t, h.store)
	dir := filepath.Join(base, "dir")
	a := claim(t, h.Run)
	for i := range 2 {
		write(t, dir, "sub/weights", random(i, 200_000))
		write(t, dir, "log", bytes.Repeat([]byte("loss 0.25\n"), 20_000+i))
		got := save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
		h.manifest = got.Manifest
	}
	h.head = a.Head()
	return h
}

// file returns the entry of a file.
func (h *hostileRun) file(path string) *checkpoint.Entry {
	for i := range h.manifest.Entries {
		if h.manifest.Entries[i].Path == path {
			return &h.manifest.Entries[i]
		}
	}
	panic(path)
}

// putManifest stores the manifest as the newest snapshot after an edit of its JSON.
func (h *hostileRun) putManifest(t *testing.T, edit func(string) string) {
	t.Helper()
	doc, err := json.Marshal(h.manifest)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		changed := edit(string(doc))
		if changed == string(doc) {
			t.Fatal("the edit changes nothing")
		}
		doc = []byte(changed)
	}
	h.putRaw(t, zipped(t, doc))
}

// putRaw stores the bytes of a manifest.
func (h *hostileRun) putRaw(t *testing.T, data []byte) {
	t.Helper()
	key := h.manifest.Key(data)
	s := &h.head.Snapshots[0]
	s.Manifest, s.SHA256 = key, key[len(key)-len(".json.gz")-64:len(key)-len(".json.gz")]
	head, err := checkpoint.EncodeHead(h.head)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.store, key, data)
	write(t, h.store, "HEAD", head)
}

func zipped(t *testing.T, doc []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(doc)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkRefused checks that every reader refuses the newest snapshot, that the one before is
// restored, and that nothing else is written.
func (h *hostileRun) checkRefused(t *testing.T) {
	t.Helper()
	v, err := h.Verify(t.Context(), 0, 1, nil)
	if err != nil || len(v.Damage) != 1 || len(v.Damage[0].Seqs) != 1 || v.Damage[0].Seqs[0] != 2 {
		t.Errorf("verify: %+v, %v", v.Damage, err)
	}
	to := filepath.Join(h.base, "restored")
	if r, err := h.Restore(t.Context(), to, checkpoint.RestoreOptions{Seq: 2}); !errors.Is(err,
		checkpoint.ErrNoSnapshot) {
		t.Errorf("restored %+v, %v", r.Snapshot, err)
	}
	r, err := h.Restore(t.Context(), to, checkpoint.RestoreOptions{})
	if err != nil || r.Snapshot.Seq != 1 || len(r.Skipped) != 1 {
		t.Fatalf("restored %+v, skipped %+v, %v", r.Snapshot, r.Skipped, err)
	}
	entries, err := os.ReadDir(h.base)
	if err != nil || len(entries) != 3 {
		t.Errorf("there is %v, %v", entries, err)
	}
	if err := filepath.WalkDir(to, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			err = fmt.Errorf("%s is a link", at)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestRefusesHostileManifests(t *testing.T) {
	add := func(entries ...checkpoint.Entry) func(*hostileRun) {
		return func(h *hostileRun) {
			for i := range entries {
				entries[i].Modified = time.Unix(0, 0).UTC()
			}
			h.manifest.Entries = append(h.manifest.Entries, entries...)
		}
	}
	named := func(path string) func(*hostileRun) {
		return add(checkpoint.Entry{Path: path, Kind: checkpoint.File})
	}
	for name, edit := range map[string]func(*hostileRun){
		// Names and kinds.
		"above":        named("../x"),
		"absolute":     named("/x"),
		"NUL":          named("x\x00y"),
		"twice":        named("log"),
		"below a file": named("log/x"),
		"below a link": add(checkpoint.Entry{Path: "l", Kind: checkpoint.Symlink, Target: "../.."},
			checkpoint.Entry{Path: "l/x", Kind: checkpoint.File}),
		"a link over a folder": add(checkpoint.Entry{Path: "sub", Kind: checkpoint.Symlink, Target: "/"}),
		"hard link out":        add(checkpoint.Entry{Path: "x", Kind: checkpoint.Hardlink, Target: "../dir/log"}),
		"hard link to a link": add(checkpoint.Entry{Path: "l", Kind: checkpoint.Symlink, Target: "/etc/passwd"},
			checkpoint.Entry{Path: "x", Kind: checkpoint.Hardlink, Target: "l"}),
		"device":                 add(checkpoint.Entry{Path: "x", Kind: "device"}),
		"set-user-id":            add(checkpoint.Entry{Path: "x", Kind: checkpoint.File, Mode: 0o4755}),
		"long name":              named(strings.Repeat("x", 256)),
		"deep":                   func(h *hostileRun) { nest(h, 300) },
		"long path":              named(strings.Repeat("x/", 2500) + "x"),
		"file of another's size": func(h *hostileRun) { h.file("log").Size++ },
		// Content.
		"part twice": func(h *hostileRun) {
			m := &h.manifest
			m.Parts = append(m.Parts, m.Parts[0])
		},
		"part twice, all chunks in the first": func(h *hostileRun) {
			m := &h.manifest
			m.Parts = append([]checkpoint.Part{m.Parts[0]}, m.Parts...)
		},
		"part without a chunk": func(h *hostileRun) {
			p := h.manifest.Parts[0]
			p.SHA256 = strings.Repeat("ab", 32)
			p.Key = p.Key[:len(p.Key)-64] + p.SHA256
			h.manifest.Parts = append(h.manifest.Parts, p)
		},
		"part elsewhere": func(h *hostileRun) { h.manifest.Parts[0].Key = "../other/" + h.manifest.Parts[0].Key },
		"part of later epoch": func(h *hostileRun) {
			h.manifest.Parts[0].Key = strings.Replace(h.manifest.Parts[0].Key, "/1-", "/9-", 1)
		},
		"part of another size": func(h *hostileRun) { h.manifest.Parts[0].Size-- },
		"part that is not there": func(h *hostileRun) {
			p := &h.manifest.Parts[0]
			p.SHA256 = strings.Repeat("ab", 32)
			p.Key = p.Key[:len(p.Key)-64] + p.SHA256
		},
		"part twice, each with chunks": func(h *hostileRun) {
			m := &h.manifest
			m.Parts = append(m.Parts, m.Parts[0])
			for i := range h.file("log").Chunks {
				h.file("log").Chunks[i].Part = len(m.Parts) - 1
			}
		},
		"chunks overlap": func(h *hostileRun) { // the second has the hash of what it covers
			e := h.file("sub/weights")
			whole, err := os.ReadFile(filepath.Join(h.base, "dir", "sub", "weights"))
			c := e.Chunks[0]
			if err != nil || c.Zstd {
				panic(fmt.Sprint(c, err))
			}
			c.SHA256 = fmt.Sprintf("%x", sha256.Sum256(whole[1:c.Size]))
			c.Size, c.Stored, c.Offset = c.Size-1, c.Stored-1, c.Offset+1
			e.Chunks, e.Size = append(e.Chunks, c), e.Size+c.Size
			h.head.Snapshots[0].Bytes += c.Size
		},
		"chunk of another hash": func(h *hostileRun) { h.file("log").Chunks[0].SHA256 = strings.Repeat("ab", 32) },
		"chunk of no hash":      func(h *hostileRun) { h.file("log").Chunks[0].SHA256 = strings.Repeat("xy", 32) },
		"chunk is missing": func(h *hostileRun) {
			e := h.file("sub/weights")
			e.Chunks = e.Chunks[:len(e.Chunks)-1]
		},
		"chunk is there twice": func(h *hostileRun) {
			e := h.file("sub/weights")
			e.Chunks = append(e.Chunks, e.Chunks[0])
		},
		"negative chunk":         func(h *hostileRun) { h.file("log").Chunks[0].Size = -1 },
		"chunk offset overflows": func(h *hostileRun) { h.file("log").Chunks[0].Offset = 1<<63 - 1 },
		"decompresses to more": func(h *hostileRun) {
			e := h.file("log")
			e.Chunks[0].Size -= 100
			e.Size -= 100
			h.head.Snapshots[0].Bytes -= 100
		},
		// What HEAD says.
		"other bytes than HEAD": func(h *hostileRun) { h.head.Snapshots[0].Bytes++ },
		"other state than HEAD": func(h *hostileRun) { h.manifest.State = checkpoint.Unsettled },
		"other step than HEAD":  func(h *hostileRun) { h.manifest.Step = new(int64) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileRun(t)
			edit(h)
			h.putManifest(t, nil)
			h.checkRefused(t)
		})
	}
	for name, edit := range map[string]func(string) string{
		"key twice":       func(s string) string { return strings.Replace(s, `"seq":2`, `"seq":2,"seq":2`, 1) },
		"key in capitals": func(s string) string { return strings.Replace(s, `"zstd":true`, `"ZSTD":true`, 1) },
		"chunk size twice": func(s string) string {
			return strings.Replace(s, `"offset":`, `"size":1,"offset":`, 1)
		},
		"unknown key": func(s string) string {
			return strings.Replace(s, `"seq":2`, `"seq":2,"x":{"y":[]}`, 1)
		},
		"size is no number":  func(s string) string { return strings.Replace(s, `"size":`, `"size":"x","_":`, 1) },
		"size is a fraction": func(s string) string { return strings.Replace(s, `"stored":`, `"stored":0.5,"_":`, 1) },
		"size is out of range": func(s string) string {
			return strings.Replace(s, `"stored":`, `"stored":9223372036854775808,"_":`, 1)
		},
		"more after it": func(s string) string { return s + "{}" },
		"cut off":       func(s string) string { return s[:len(s)-10] },
		"nested": func(s string) string {
			return strings.Replace(s, `"seq":2`, `"seq":`+strings.Repeat("[", 100_000), 1)
		},
		"long value": func(s string) string {
			return strings.Replace(s, `"writer":"`, `"writer":"`+strings.Repeat("x", 100_000), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileRun(t)
			h.putManifest(t, edit)
			h.checkRefused(t)
		})
	}
	t.Run("right", func(t *testing.T) { // so that the others are refused for what they change
		h := newHostileRun(t)
		h.putManifest(t, nil)
		if r, err := h.Restore(t.Context(), filepath.Join(h.base, "restored"),
			checkpoint.RestoreOptions{}); err != nil ||
			r.Snapshot.Seq != 2 {
			t.Errorf("restored %+v, %v", r, err)
		}
	})
}

// nest adds folders in folders.
func nest(h *hostileRun, depth int) {
	for i := range depth {
		h.manifest.Entries = append(h.manifest.Entries, checkpoint.Entry{
			Path: strings.TrimSuffix(strings.Repeat("d/", i+1), "/"), Kind: checkpoint.Folder,
		})
	}
}

// TestCollectRefusesHostileManifest checks that a collection deletes nothing if a manifest is
// refused.
func TestCollectRefusesHostileManifest(t *testing.T) {
	h := newHostileRun(t)
	h.manifest.Parts = append(h.manifest.Parts, h.manifest.Parts[0])
	h.putManifest(t, nil)
	makeOlder(t, h.store, 48*time.Hour)
	before := objects(t, h.store)
	if c, err := claim(t, h.Run).Collect(t.Context(), checkpoint.Retention{Keep: 1}); !errors.Is(err,
		checkpoint.ErrDamaged) || objects(t, h.store) != before {
		t.Errorf("collected %+v, %v", c, err)
	}
}

// TestVerifyReadsChunksOfEachManifest checks that chunks named only by an older manifest are
// verified even if a newer one names their part.
func TestVerifyReadsChunksOfEachManifest(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	r := run(t, store)
	a := claim(t, r)
	write(t, dir, "a", random(1, 100_000))
	write(t, dir, "b", random(2, 100_000))
	first := save(t, a, dir, checkpoint.SaveOptions{})
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	save(t, a, dir, checkpoint.SaveOptions{})
	h := &hostileRun{Run: r, store: store, manifest: first.Manifest, head: a.Head()}
	h.file("b").Chunks[0].SHA256 = strings.Repeat("ab", 32)
	data, key, err := checkpoint.EncodeManifest(h.manifest)
	if err != nil {
		t.Fatal(err)
	}
	s := &h.head.Snapshots[1]
	s.Manifest, s.SHA256 = key, key[len(key)-72:len(key)-8]
	head, err := checkpoint.EncodeHead(h.head)
	if err != nil {
		t.Fatal(err)
	}
	write(t, store, key, data)
	write(t, store, "HEAD", head)
	if v, err := r.Verify(t.Context(), 0, 1, nil); err != nil || len(v.Damage) != 1 || v.Damage[0].Seqs[0] != 1 {
		t.Errorf("verify: %+v, %v", v.Damage, err)
	}
}

// decompressionBombs writes small manifests that would need much memory.
func decompressionBombs() map[string]func(w io.Writer) {
	const most = checkpoint.ExpandBase
	entry := func(i int) string {
		return fmt.Sprintf(
			`{"path":"%07d","kind":"folder","mode":0,"modified":"2026-01-01T00:00:00Z","size":0,"finished":""}`, i)
	}
	list := func(open, shut string, size int, value func(i int) string) func(io.Writer) {
		return func(w io.Writer) {
			n, _ := io.WriteString(w, open+value(0))
			for i := 1; n < size-1000; i++ {
				k, _ := io.WriteString(w, ","+value(i))
				n += k
			}
			_, _ = io.WriteString(w, shut)
		}
	}
	fill := func(open, fill string, size int, shut string) func(io.Writer) {
		return func(w io.Writer) {
			_, _ = io.WriteString(w, open)
			for range size >> 20 {
				_, _ = io.WriteString(w, strings.Repeat(fill, 1<<20))
			}
			_, _ = io.WriteString(w, shut)
		}
	}
	return map[string]func(io.Writer){
		"spaces":        fill("", " ", 1<<30, "{}"),
		"empty entries": list(`{"entries":[`, `]}`, most, func(int) string { return "{}" }),
		"entries":       list(`{"entries":[`, `]}`, 2*most, entry), // about 1 MiB
		"same entries":  list(`{"entries":[`, `]}`, 4*most, func(int) string { return entry(0) }),
		"left out":      list(`{"left_out":[`, `]}`, most, func(int) string { return "{}" }),
		"chunks": list(`{"entries":[{"path":"x","chunks":[`, `]}]}`, most, func(int) string {
			return `{"sha256":"` + strings.Repeat("0", 64) + `","size":1,"part":0,"offset":0,"stored":1}`
		}),
		"a text":   fill(`{"writer":"`, "x", 512<<20, `"}`),
		"quotes":   fill(`{"writer":"`, `\"`, 64<<20, `"}`),
		"brackets": fill(`{"entries":`, "[", 128<<20, ""),
		"a number": fill(`{"seq":`, "1", 128<<20, "}"),
	}
}

// maxReaderMemory bounds the memory of a process that reads a bomb of up to 1 MiB: 32 MiB of JSON
// and its values, doubled for the garbage collector.
const maxReaderMemory = 384 << 20

// TestDecodingMemoryIsBounded measures processes that read bombs, by running this test again.
func TestDecodingMemoryIsBounded(t *testing.T) {
	if at := os.Getenv("CHECKPOINT_TEST_BOMB"); at != "" {
		data, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		m := checkpoint.Manifest{Seq: 7, Attempt: "3-00112233445566aa"}
		if _, err := checkpoint.DecodeManifest(m.Key(data), data); !errors.Is(err, checkpoint.ErrDamaged) {
			t.Fatal(err)
		}
		var took runtime.MemStats
		runtime.ReadMemStats(&took)
		fmt.Printf("took %d\n", took.Sys)
		return
	}
	for name, write := range decompressionBombs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := filepath.Join(t.TempDir(), "bomb")
			file, err := os.Create(at)
			if err != nil {
				t.Fatal(err)
			}
			z := gzip.NewWriter(file)
			b := bufio.NewWriterSize(z, 1<<20)
			write(b)
			if err := errors.Join(b.Flush(), z.Close(), file.Close()); err != nil {
				t.Fatal(err)
			}
			if i, err := os.Stat(at); err != nil || i.Size() > 1<<20+1<<16 {
				t.Fatalf("it has %d bytes, %v", i.Size(), err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestDecodingMemoryIsBounded$")
			cmd.Env = append(os.Environ(), "CHECKPOINT_TEST_BOMB="+at)
			out, err := cmd.CombinedOutput()
			var took int64
			if _, scanned := fmt.Sscanf(string(out), "took %d", &took); err != nil || scanned != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%d MiB, %v", took>>20, cmd.ProcessState.UserTime())
			if took > maxReaderMemory {
				t.Errorf("it took %d MiB", took>>20)
			}
		})
	}
}

func TestHeadSnapshotsAreBounded(t *testing.T) {
	line := []byte(`{"snapshots":[{}` + strings.Repeat(",{}", checkpoint.MaxHead/3-100) + "]}\n")
	data := fmt.Appendf(line, "%x\n", sha256.Sum256(line))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := checkpoint.DecodeHead(data); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
}
