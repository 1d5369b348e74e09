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

// entered runs a command in a session, in its work folder, and returns its exit code. An error
// says that the code did not come.
type entered func(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error)

// remote runs a command in a session, in its work folder. Its error is what the command said.
type remote func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error

// remote is the way of commands of which only the end matters.
func (e entered) remote() remote {
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

// tailBuffer keeps the last of what is written.
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

// CopyPaths are the two ends of a copy. A path of the session begins with a colon and is below
// its work folder, unless it is absolute; exactly one of the two is of the session.
type CopyPaths struct {
	From, To string
	// Exactly copies a folder's content into To, and what comes from the session to the very
	// name To. Otherwise a folder that is there gets an entry of the name that From has.
	Exactly bool
	// Skip says which paths below From, with slashes, are left out of an upload; nil: none.
	Skip func(rel string) bool
}

// notThereError is the error of a copy of a path that a session does not have.
type notThereError string

func (e notThereError) Error() string { return "there is no " + string(e) }

// split says which way the copy goes, with the path here and the one of the session.
func (p CopyPaths) split() (up bool, here, there string, err error) {
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

// use hands the machine over, by an SSH connection to it.
func (r *reachable) use(ctx context.Context, o Options) error {
	return r.client(ctx, func(ctx context.Context, client *ssh.Client) error {
		return o.Use(ctx, &Machine{r.all, r.s.Name, sshEnter(client), o.Err})
	})
}

// Machine is a machine of a session that is reached for a time. At AWS all that it does goes
// over one SSH connection.
type Machine struct {
	all   *sessions.Sessions
	name  string
	enter entered
	// err takes lines for people.
	err io.Writer
}

// Run runs a command in the work folder, with the environment of the session, and returns its
// exit code. An error says that the code did not come.
func (m *Machine) Run(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
	return m.enter(ctx, argv, in, out, errs)
}

// copied copies a file or a folder by tar on both sides.
func (m *Machine) copied(ctx context.Context, p CopyPaths) error {
	_, err := m.copy(ctx, p)
	return err
}

// copy copies, and says what of it was left out.
func (m *Machine) copy(ctx context.Context, p CopyPaths) (leftOut []string, err error) {
	up, here, there, err := p.split()
	if err != nil {
		return nil, err
	}
	req := m.all.Request
	bar := req.Progress("copying")
	defer bar.Finish()
	c := &copying{
		run: m.enter.remote(), here: req.Path(here), into: strings.HasSuffix(here, "/"), there: there, exactly: p.Exactly,
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
	if len(c.left) > 0 {
		left = fmt.Sprintf("; %s left out: links that lead out of the folder, devices, sockets",
			plain.Count(len(c.left), "entry"))
	}
	plain.Fprintf(m.err, "%s, %s copied %s session %s%s\n", plain.Count(c.files, "file"), plain.Size(c.bytes),
		map[bool]string{true: "to", false: "from"}[up], m.name, left)
	return c.left, nil
}

// copying is one copy.
type copying struct {
	run         remote
	here, there string
	// into says that here is a folder to copy into, also where it is not there yet.
	into bool
	// exactly and skip are those of the paths.
	exactly bool
	skip    func(rel string) bool
	bar     runtime.Bar

	files int
	// left are the paths that were left out: here, or those of the machine.
	left  []string
	bytes int64
	total int64
}

// Scripts of the side of the session. They print the folder and the name in it, and for what is
// there its size in KiB as well, each ended by a zero byte; all empty where it is not there.
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

// ask runs a script of the other side and returns its words.
func (c *copying) ask(ctx context.Context, script string, words int, args ...string) ([]string, error) {
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

// moved counts bytes and shows how far the copy is.
func (c *copying) moved(n int64) {
	c.bytes += n
	c.bar.Report(round.Progress{
		What: plain.Size(c.bytes) + " copied", Done: int(c.bytes >> 10), Total: int(max(c.total, c.bytes) >> 10),
	})
}

// upload copies to the session.
func (c *copying) upload(ctx context.Context) error {
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
	if c.exactly {
		there = cmp.Or(there, ".") + "/"
	}
	place, err := c.ask(ctx, copyInto, 2, there, name)
	if err != nil {
		return err
	}
	if c.exactly && info.IsDir() {
		place[1] = "."
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := c.pack(ctx, w, abs, place[1], info)
		w.CloseWithError(err) //nolint:errcheck // it returns none
		packed <- err
	}()
	err = c.run(ctx, []string{"sh", "-c", unpack, "sh", place[0]}, r, io.Discard)
	r.CloseWithError(errors.New("the machine reads no more")) //nolint:errcheck // it returns none
	if e := <-packed; err == nil {
		err = e
	}
	return err
}

// pack writes a file or folder as a tar under a name.
func (c *copying) pack(ctx context.Context, to io.Writer, root, name string, top fs.FileInfo) error {
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
			c.left = append(c.left, as)
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
		// A file that grows meanwhile is copied as long as it was.
		_, err = io.Copy(w, &counting{io.LimitReader(f, h.Size), c})
		return err
	}
	if err := c.walk(ctx, root, func(file, rel string, info fs.FileInfo) error {
		if file == root {
			info = top
		}
		as := path.Join(name, rel)
		if as == "." {
			return nil // the folder that it goes into is there
		}
		return add(file, info, as)
	}); err != nil {
		return err
	}
	return w.Close()
}

// walk visits a file, or a folder and what is in it, but for what is skipped; rel is the path
// below it, with slashes.
func (c *copying) walk(ctx context.Context, root string, visit func(file, rel string, info fs.FileInfo) error) error {
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

// counting counts what is read.
type counting struct {
	io.Reader
	c *copying
}

// Read implements io.Reader.
func (r *counting) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.c.moved(int64(n))
	return n, err
}

// download copies from the session.
func (c *copying) download(ctx context.Context) error {
	place, err := c.ask(ctx, copyFrom, 3, c.there)
	if err != nil {
		return err
	}
	if place[1] == "" {
		return notThereError(c.there)
	}
	if kib, err := strconv.ParseInt(strings.TrimSpace(place[2]), 10, 64); err == nil {
		c.total = kib << 10
	}
	parent, name := filepath.Dir(c.here), filepath.Base(c.here)
	if info, err := os.Stat(c.here); !c.exactly && (err == nil && info.IsDir() || c.into) {
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
		w.CloseWithError(err) //nolint:errcheck // it returns none
		sent <- err
	}()
	err = c.unpack(root, r, place[1], name)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // what follows the end of the archive
	}
	r.CloseWithError(errors.New("no more is taken")) //nolint:errcheck // it returns none
	if e := <-sent; e != nil && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = e
	}
	return err
}

// unpack writes the files of a tar below a folder, and nothing elsewhere whatever it says.
func (c *copying) unpack(root *os.Root, from io.Reader, top, as string) error {
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
func (c *copying) entry(root *os.Root, t io.Reader, h *tar.Header, name, top, as string) error {
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
		_, err = io.Copy(f, &counting{t, c})
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
			c.left = append(c.left, name)
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
			c.left = append(c.left, name)
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Link(filepath.FromSlash(as+rest), name)
	}
	c.left = append(c.left, name)
	return nil
}
