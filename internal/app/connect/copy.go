package connect

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// commandRunner runs a command in a session's work folder and returns its exit code. An error means
// that no code arrived.
type commandRunner func(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error)

// checkedRunner runs a command in a session's work folder. Its error holds the command's error
// output.
type checkedRunner func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error

// checked returns a runner that turns failing exit codes into errors.
func (e commandRunner) checked() checkedRunner {
	return func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
		var said tailBuffer
		code, err := e(ctx, argv, in, out, &said)
		if err != nil || code == 0 {
			return err
		}
		if line := strings.TrimSpace(said.String()); line != "" {
			return errors.New(plain.Line(line))
		}
		return fmt.Errorf("%s ended with exit code %d", argv[0], code)
	}
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tailBuffer) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-2<<10):]
	return len(b), nil
}

func (t *tailBuffer) String() string { t.mu.Lock(); defer t.mu.Unlock(); return string(t.kept) }

// CopyPaths are the source and target of a copy. Exactly one begins with a colon, which marks a
// path of the session, relative to its work folder unless absolute.
type CopyPaths struct {
	From, To string
	// Exact copies a folder's content into To, and a download to the name To itself. Otherwise an
	// existing target folder gets an entry with From's name.
	Exact bool
	// Skip reports which slash-separated paths below From an upload leaves out; nil skips none.
	Skip func(rel string) bool
}

// missingPathError is the error for a path that the session lacks.
type missingPathError string

func (e missingPathError) Error() string { return "there is no " + string(e) }

// direction returns whether the copy is an upload, and the local and remote paths.
func (p CopyPaths) direction() (up bool, here, there string, err error) {
	from, fromThere := strings.CutPrefix(p.From, ":")
	to, toThere := strings.CutPrefix(p.To, ":")
	switch {
	case fromThere == toThere:
		return false, "", "", &runtime.Error{
			Class: runtime.Usage, Code: "usage",
			Err:  errors.New("one of the two paths is of the session and begins with a colon"),
			Hint: "such as --copy data :data, or --copy :out/model.pt .",
		}
	case toThere:
		return true, p.From, to, nil
	}
	return false, p.To, from, nil
}

// useMachine passes the machine to Options.UseMachine over one SSH connection.
func (r *awsMachine) useMachine(ctx context.Context, o Options) error {
	return r.withSSHClient(ctx, func(ctx context.Context, client *ssh.Client) error {
		return o.UseMachine(ctx, &Machine{r.sessions, r.session.Name, sshEnter(client), o.Err})
	})
}

// Machine is a reachable machine of a session. At AWS, all its calls share one SSH connection.
type Machine struct {
	sessions *sessions.Sessions
	name     string
	run      commandRunner
	// messages receives lines for people.
	messages io.Writer
}

// Run runs a command in the work folder with the session's environment and returns its exit code.
// An error means that no code arrived.
func (m *Machine) Run(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
	return m.run(ctx, argv, in, out, errs)
}

// copyAndReport copies with tar on both sides and reports what was left out.
func (m *Machine) copyAndReport(ctx context.Context, p CopyPaths) error {
	_, err := m.copy(ctx, p)
	return err
}

// copy copies paths and returns those that were left out.
func (m *Machine) copy(ctx context.Context, p CopyPaths) (leftOut []string, err error) {
	up, here, there, err := p.direction()
	if err != nil {
		return nil, err
	}
	req := m.sessions.Request
	bar := req.Progress("copying")
	defer bar.Finish()
	c := &copyJob{
		run: m.run.checked(), here: req.Path(here), intoFolder: strings.HasSuffix(here, "/"),
		there: there, exact: p.Exact,
		skip: p.Skip, bar: bar,
	}
	if up {
		err = c.upload(ctx)
	} else {
		err = c.download(ctx)
	}
	bar.Finish()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("copy %s to %s: %w", p.From, p.To, err)
	}
	left := ""
	if len(c.leftOut) > 0 {
		left = fmt.Sprintf("; %s left out: links that lead out of the folder, devices, sockets",
			plain.Count(len(c.leftOut), "entry"))
	}
	plain.Fprintf(m.messages, "%s, %s copied %s session %s%s\n", plain.Count(c.files, "file"), plain.Size(c.bytes),
		map[bool]string{true: "to", false: "from"}[up], m.name, left)
	return c.leftOut, nil
}

// copyJob is one copy.
type copyJob struct {
	run         checkedRunner
	here, there string
	// intoFolder reports that the local path is a folder to copy into, even if it does not exist
	// yet.
	intoFolder bool
	// exact and skip are as in CopyPaths.
	exact bool
	skip  func(rel string) bool
	bar   runtime.Bar

	files int
	// leftOut are the skipped local or remote paths.
	leftOut []string
	bytes   int64
	total   int64
}

// Scripts for the session's side. They print the folder, the name in it, and for existing paths the
// size in KiB, each terminated by a zero byte; all are empty if the path does not exist.
const (
	home     = `case $d in "~") d=$HOME;; "~/"*) d=$HOME/${d#"~/"};; "") d=.;; esac; `
	copyInto = `d=$1; b=$2; ` + home + `case $d in */) mkdir -p -- "$d" || exit;; esac
if [ -d "$d" ]; then printf '%s\0%s\0' "$d" "$b"; else p=$(dirname -- "$d") && mkdir -p -- "$p" && printf '%s\0%s\0' "$p" "$(basename -- "$d")"; fi`
	copyFrom = `d=$1; ` + home + `[ -e "$d" ] || { printf '\0\0\0'; exit 0; }
if [ -d "$d" ]; then d=$(cd -- "$d" && pwd -P) || exit; fi
printf '%s\0%s\0%s\0' "$(dirname -- "$d")" "$(basename -- "$d")" "$(du -sk -- "$d" | cut -f1)"`
	unpack = `cd -- "$1" && exec tar -x -o -f -`
	pack   = `cd -- "$1" && exec tar -c -f - -- "$2"`
)

// ask runs a script on the session's side and returns its words.
func (c *copyJob) ask(ctx context.Context, script string, words int, args ...string) ([]string, error) {
	var out bytes.Buffer
	if err := c.run(ctx, append([]string{"sh", "-c", script, "sh"}, args...), nil, &out); err != nil {
		return nil, err
	}
	got := strings.Split(out.String(), "\x00")
	if len(got) != words+1 {
		return nil, errors.New("the machine does not say where the path is")
	}
	return got, nil
}

// addProgress counts bytes and updates the progress bar.
func (c *copyJob) addProgress(n int64) {
	c.bytes += n
	c.bar.Report(round.Progress{
		What: plain.Size(c.bytes) + " copied", Done: int(c.bytes >> 10), Total: int(max(c.total, c.bytes) >> 10),
	})
}

// upload copies to the session.
func (c *copyJob) upload(ctx context.Context) error {
	info, err := os.Stat(c.here)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(c.here)
	if err != nil {
		return err
	}
	name := filepath.Base(abs)
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return err
	}
	if err := c.walk(ctx, abs, func(_, _ string, i fs.FileInfo) error {
		if i.Mode().IsRegular() {
			c.total += i.Size()
		}
		return nil
	}); err != nil {
		return err
	}
	there := c.there
	if c.exact {
		there = cmp.Or(there, ".") + "/"
	}
	place, err := c.ask(ctx, copyInto, 2, there, name)
	if err != nil {
		return err
	}
	if c.exact && info.IsDir() {
		place[1] = "."
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := c.pack(ctx, w, abs, place[1], info)
		w.CloseWithError(err) //nolint:errcheck // CloseWithError returns nil
		packed <- err
	}()
	err = c.run(ctx, []string{"sh", "-c", unpack, "sh", place[0]}, r, io.Discard)
	r.CloseWithError(errors.New("the machine reads no more")) //nolint:errcheck // CloseWithError returns nil
	if e := <-packed; err == nil {
		err = e
	}
	return err
}

// pack writes a file or folder as a tar under a name.
func (c *copyJob) pack(ctx context.Context, to io.Writer, root, name string, top fs.FileInfo) error {
	w := tar.NewWriter(to)
	add := func(file string, info fs.FileInfo, as string) error {
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			var err error
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			c.leftOut = append(c.leftOut, as)
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = as, 0, 0, "", "", tar.FormatPAX
		if info.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		c.files++
		// A growing file is copied up to its size in the header.
		_, err = io.Copy(w, &countingReader{io.LimitReader(f, h.Size), c})
		return err
	}
	if err := c.walk(ctx, root, func(file, rel string, info fs.FileInfo) error {
		if file == root {
			info = top
		}
		as := path.Join(name, rel)
		if as == "." {
			return nil // its parent folder exists
		}
		return add(file, info, as)
	}); err != nil {
		return err
	}
	return w.Close()
}

// walk visits a file, or a folder with its content, except skipped paths; rel is the
// slash-separated relative path.
func (c *copyJob) walk(ctx context.Context, root string, visit func(file, rel string, info fs.FileInfo) error) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if c.skip != nil && rel != "." && c.skip(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return visit(file, rel, info)
	})
}

// countingReader adds read bytes to the progress.
type countingReader struct {
	io.Reader
	job *copyJob
}

// Read implements io.Reader.
func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.job.addProgress(int64(n))
	return n, err
}

// download copies from the session.
func (c *copyJob) download(ctx context.Context) error {
	place, err := c.ask(ctx, copyFrom, 3, c.there)
	if err != nil {
		return err
	}
	if place[1] == "" {
		return missingPathError(c.there)
	}
	if kib, err := strconv.ParseInt(strings.TrimSpace(place[2]), 10, 64); err == nil {
		c.total = kib << 10
	}
	parent, name := filepath.Dir(c.here), filepath.Base(c.here)
	if info, err := os.Stat(c.here); !c.exact && (err == nil && info.IsDir() || c.intoFolder) {
		parent, name = c.here, place[1]
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is no name of a file", name)
	}
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written to the folder itself
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := c.run(ctx, []string{"sh", "-c", pack, "sh", place[0], place[1]}, nil, w)
		w.CloseWithError(err) //nolint:errcheck // CloseWithError returns nil
		sent <- err
	}()
	err = c.unpack(root, r, place[1], name)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // drain what follows the archive
	}
	r.CloseWithError(errors.New("no more is taken")) //nolint:errcheck // CloseWithError returns nil
	if e := <-sent; e != nil && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = e
	}
	return err
}

// unpack writes the files of a tar below a folder, and nowhere else whatever the tar contains.
func (c *copyJob) unpack(root *os.Root, from io.Reader, top, as string) error {
	t := tar.NewReader(from)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		clean := path.Clean(h.Name)
		rest, inside := strings.CutPrefix(clean, top)
		if !inside || rest != "" && rest[0] != '/' {
			return fmt.Errorf("the machine sent %q, which is not below %q", h.Name, top)
		}
		name := filepath.FromSlash(as + rest)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the machine sent %q, which leads out of the folder", h.Name)
		}
		if err := c.entry(root, t, h, name, top, as); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
}

// entry writes one entry of a tar.
func (c *copyJob) entry(root *os.Root, t io.Reader, h *tar.Header, name, top, as string) error {
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		part := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
		f, err := root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, &countingReader{t, c})
		if err = errors.Join(err, f.Close()); err == nil {
			err = root.Rename(part, name)
		}
		if err != nil {
			return errors.Join(err, root.Remove(part))
		}
		c.files++
		return root.Chtimes(name, h.ModTime, h.ModTime)
	case tar.TypeSymlink:
		target := filepath.Join(filepath.Dir(name), filepath.FromSlash(h.Linkname))
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(target) {
			c.leftOut = append(c.leftOut, name)
			return nil
		}
		if i, err := root.Lstat(name); err == nil && !i.IsDir() {
			if err := root.Remove(name); err != nil {
				return err
			}
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		rest, inside := strings.CutPrefix(path.Clean(h.Linkname), top)
		if !inside {
			c.leftOut = append(c.leftOut, name)
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Link(filepath.FromSlash(as+rest), name)
	}
	c.leftOut = append(c.leftOut, name)
	return nil
}
