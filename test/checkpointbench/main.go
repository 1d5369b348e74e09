// Command checkpointbench saves and restores a folder with curfew, restic, `aws s3 sync` and rclone
// against one real S3 server, as the folder changes by nothing, by 5% and as a whole:
//
//	go run ./test/checkpointbench -size 10737418240 ./bin/curfew
//
// For each it prints seconds, bytes that went over the wire and peak memory. It fails where
// curfew takes over 1.15 times as long as `aws s3 sync` for a folder that is new, or as restic for
// one that did not change, or sends over a tenth of the bytes of `aws s3 sync` for one of which 5%
// changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/test/versitygw"
)

func main() {
	size := flag.Int64("size", 10<<30, "bytes of the folder")
	files := flag.Int("files", 10, "files of the folder")
	length := flag.Int("run", 1<<20, "bytes of each change")
	temp := flag.String("temp", os.TempDir(),
		"where the folder and the server's data are; they take six times the size")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: checkpointbench [flags] CURFEW")
		os.Exit(2)
	}
	if err := bench(context.Background(), os.Stdout, flag.Arg(0), *temp, *size, *files, *length); err != nil {
		fmt.Fprintln(os.Stderr, "checkpointbench:", err)
		os.Exit(1)
	}
}

// tool is a program that saves and restores.
type tool struct {
	name          string
	save, restore func(dir string) []string
}

// figure is the result of one run of a tool.
type figure struct {
	seconds float64
	// sent and got are bytes on the network; memory is the peak in bytes.
	sent, got, memory int64
}

// wire counts the bytes between the tools and the server.
type wire struct {
	listener  net.Listener
	to        string
	sent, got atomic.Int64
}

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", w.to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() { count(far, near, &w.sent); _ = far.(*net.TCPConn).CloseWrite() }()
			count(near, far, &w.got)
		}()
	}
}

func count(to io.Writer, from io.Reader, n *atomic.Int64) {
	buf := make([]byte, 256<<10)
	for {
		k, err := from.Read(buf)
		n.Add(int64(k))
		if k > 0 {
			if _, err := to.Write(buf[:k]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func bench(ctx context.Context, out io.Writer, curfew, temp string, size int64, files, length int) error {
	work, err := os.MkdirTemp(temp, "checkpointbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	binary, err := versitygw.Binary(ctx)
	if err != nil {
		return err
	}
	store := filepath.Join(work, "store")
	if err := os.Mkdir(store, 0o755); err != nil {
		return err
	}
	server, err := versitygw.Run(binary, store)
	if err != nil {
		return err
	}
	defer server.Kill()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	w := &wire{listener: l, to: server.Address()}
	go w.serve()
	// Variables for another account would take precedence.
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "AWS_") || strings.HasPrefix(e, "RCLONE_")
	})
	for k, v := range versitygw.Env(l.Addr().String()) {
		env = append(env, k+"="+v)
	}
	env = append(env, "RCLONE_CONFIG_S_TYPE=s3", "RCLONE_CONFIG_S_PROVIDER=Other",
		"RCLONE_CONFIG_S_ENDPOINT=http://"+l.Addr().String(), "RCLONE_CONFIG_S_REGION=us-east-1",
		"RCLONE_CONFIG_S_ACCESS_KEY_ID="+versitygw.AccessKey, "RCLONE_CONFIG_S_SECRET_ACCESS_KEY="+versitygw.SecretKey)
	tools := available(curfew)
	env = append(env, "RESTIC_PASSWORD=bench",
		"RESTIC_REPOSITORY=s3:http://"+l.Addr().String()+"/"+versitygw.Bucket+"/restic",
		"RESTIC_CACHE_DIR="+filepath.Join(work, "restic-cache"))
	if slices.ContainsFunc(tools, func(t tool) bool { return t.name == restic }) {
		if _, err := w.run(ctx, env, []string{restic, "--quiet", "init"}); err != nil {
			return fmt.Errorf("%s init: %w", restic, err)
		}
	}
	dir := filepath.Join(work, "folder")
	if err := fill(dir, size, files, 1); err != nil {
		return err
	}
	time.Sleep(4 * time.Second) // a file that changed just before it was read is read again
	fmt.Fprintf(out, "%s in %d files, changes of %s, against versitygw on loopback\n\n", plain.Size(size), files,
		plain.Size(int64(length)))
	fmt.Fprintf(out, "%-22s %-14s %9s %12s %12s %12s\n", "folder", "tool", "seconds", "sent",
		"received", "peak memory")
	all := map[string]map[string]figure{}
	run := func(what string, t tool, args []string) error {
		f, err := w.run(ctx, env, args)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", what, t.name, err)
		}
		if all[what] == nil {
			all[what] = map[string]figure{}
		}
		all[what][t.name] = f
		fmt.Fprintf(out, "%-22s %-14s %9.1f %12s %12s %12s\n", what, t.name, f.seconds, plain.Size(f.sent),
			plain.Size(f.got), plain.Size(f.memory))
		return nil
	}
	steps := []struct {
		what   string
		change func() error
	}{
		{"new", func() error { return nil }},
		{unchanged, func() error { return nil }},
		{"5% changed", func() error { return change(dir, 0.05, length, false) }},
		{"5% inserted", func() error { return change(dir, 0.05, length, true) }},
		{"100% changed", func() error { return fill(dir, size, files, 2) }},
	}
	for _, s := range steps {
		if err := s.change(); err != nil {
			return err
		}
		for _, t := range tools {
			if err := run(s.what, t, t.save(dir)); err != nil {
				return err
			}
		}
	}
	back := filepath.Join(work, "back")
	for _, t := range tools {
		if err := run("restore", t, t.restore(back)); err != nil {
			return err
		}
		// sequential, to reduce the load on the disk
		if err := errors.Join(equal(dir, back), os.RemoveAll(back)); err != nil {
			return fmt.Errorf("restore: %s: %w", t.name, err)
		}
	}
	return judge(out, all)
}

const (
	restic    = "restic"
	unchanged = "0% changed"
)

// judge compares the figures with the documented limits.
func judge(out io.Writer, all map[string]map[string]figure) error {
	return errors.Join(judgeUnchanged(out, all[unchanged]), judgeAgainst(out, all, "aws s3 sync"))
}

// judgeUnchanged compares the saves of an unchanged folder.
func judgeUnchanged(out io.Writer, by map[string]figure) error {
	other, ok := by[restic]
	if !ok {
		fmt.Fprintf(out, "\n%s is not installed: nothing to compare an unchanged folder with\n", restic)
		return nil
	}
	ratio := by["curfew"].seconds / other.seconds
	fmt.Fprintf(out, "\n%s: %.2f times the seconds of %s", unchanged, ratio, restic)
	if ratio > 1.15 {
		return fmt.Errorf("%s takes %.2f times as long as %s, over 1.15", unchanged, ratio, restic)
	}
	return nil
}

// judgeAgainst compares changed and new data.
func judgeAgainst(out io.Writer, all map[string]map[string]figure, yardstick string) error {
	if _, ok := all["new"][yardstick]; !ok {
		fmt.Fprintf(out, "\n%s is not installed: nothing to compare with\n", yardstick)
		return nil
	}
	var errs []error
	for what, most := range map[string]float64{"new": 1.15, "100% changed": 1.15} {
		ratio := all[what]["curfew"].seconds / all[what][yardstick].seconds
		fmt.Fprintf(out, "\n%s: %.2f times the seconds of %s", what, ratio, yardstick)
		if ratio > most {
			errs = append(errs, fmt.Errorf("%s takes %.2f times as long as %s, over %.2f", what,
				ratio, yardstick, most))
		}
	}
	for _, what := range []string{"5% changed", "5% inserted"} {
		ratio := float64(all[what]["curfew"].sent) / float64(all[what][yardstick].sent)
		fmt.Fprintf(out, "\n%s: %.3f times the bytes of %s", what, ratio, yardstick)
		if ratio > 0.1 {
			errs = append(errs, fmt.Errorf("%s sends %.3f times the bytes of %s, over a tenth",
				what, ratio, yardstick))
		}
	}
	fmt.Fprintln(out)
	return errors.Join(errs...)
}

// available returns the installed tools.
func available(curfew string) []tool {
	tools := []tool{{"curfew",
		func(dir string) []string {
			return []string{
				curfew, "checkpoint", "save", dir, "s3://" + versitygw.Bucket + "/curfew", "--exited",
				"--nice", "0", "--quiet",
			}
		},
		func(dir string) []string {
			return []string{
				curfew, "checkpoint", "restore", "s3://" + versitygw.Bucket + "/curfew", dir, "--nice", "0", "--quiet",
			}
		}}}
	if _, err := exec.LookPath("aws"); err == nil {
		at := "s3://" + versitygw.Bucket + "/aws"
		tools = append(tools, tool{"aws s3 sync",
			func(dir string) []string {
				return []string{"aws", "s3", "sync", "--only-show-errors", "--delete", dir, at}
			},
			func(dir string) []string { return []string{"aws", "s3", "sync", "--only-show-errors", at, dir} }})
	}
	if _, err := exec.LookPath(restic); err == nil {
		tools = append(tools, tool{restic,
			func(dir string) []string {
				return []string{"sh", "-c", `cd "$1" && restic --quiet backup .`, "sh", dir}
			},
			func(dir string) []string { return []string{restic, "--quiet", "restore", "latest", "--target", dir} }})
	}
	if _, err := exec.LookPath("rclone"); err == nil {
		at := "s:" + versitygw.Bucket + "/rclone"
		tools = append(tools, tool{"rclone",
			func(dir string) []string { return []string{"rclone", "--config", os.DevNull, "sync", dir, at} },
			func(dir string) []string { return []string{"rclone", "--config", os.DevNull, "sync", at, dir} }})
	}
	return tools
}

// run runs a program and measures it.
func (w *wire) run(ctx context.Context, env, args []string) (figure, error) {
	sent, got := w.sent.Load(), w.got.Load()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env
	started := time.Now()
	if said, err := cmd.CombinedOutput(); err != nil {
		return figure{}, fmt.Errorf("%w\n%s", err, said)
	}
	f := figure{seconds: time.Since(started).Seconds(), sent: w.sent.Load() - sent, got: w.got.Load() - got}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		f.memory = usage.Maxrss << 10
	}
	return f, nil
}

// fill writes a folder of random content.
func fill(dir string, size int64, files int, seed byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("shard-%03d.bin", i)))
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{seed, byte(i), byte(i >> 8)}), size/int64(files))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// change overwrites a share of every file in runs of a length at random offsets, or inserts
// as much there.
func change(dir string, share float64, length int, insert bool) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil {
		return err
	}
	for i, name := range names {
		r := rand.New(rand.NewPCG(uint64(i), uint64(length)))
		content := rand.NewChaCha8([32]byte{3, byte(i), map[bool]byte{true: 1}[insert]}) // new each time
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		length := int(min(int64(length), info.Size()))
		count := max(int(share*float64(info.Size())/float64(length)), 1)
		offsets := make([]int64, count)
		for k := range offsets {
			offsets[k] = r.Int64N(info.Size() - int64(length) + 1)
		}
		slices.Sort(offsets)
		if err := rewrite(name, offsets, int64(length), content, insert); err != nil {
			return err
		}
	}
	return nil
}

func rewrite(name string, offsets []int64, length int64, content io.Reader, insert bool) error {
	if !insert {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		for _, at := range offsets {
			if _, err = io.CopyN(io.NewOffsetWriter(f, at), content, length); err != nil {
				break
			}
		}
		return errors.Join(err, f.Close())
	}
	old, err := os.Open(name)
	if err != nil {
		return err
	}
	defer old.Close()
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	var at int64
	for _, next := range offsets {
		_, e1 := io.CopyN(f, old, next-at)
		_, e2 := io.CopyN(f, content, length)
		if err = errors.Join(e1, e2); err != nil {
			return errors.Join(err, f.Close())
		}
		at = next
	}
	_, err = io.Copy(f, old)
	return errors.Join(err, f.Close(), os.Rename(name+".new", name))
}

// equal reports whether two folders have the same files.
func equal(x, y string) error {
	return fs.WalkDir(os.DirFS(x), ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return sameFile(filepath.Join(x, at), filepath.Join(y, at))
	})
}

func sameFile(x, y string) error {
	a, err := os.Open(x)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Open(y)
	if err != nil {
		return err
	}
	defer b.Close()
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(a, p)
		m, _ := io.ReadFull(b, q)
		if n != m || string(p[:n]) != string(q[:m]) {
			return fmt.Errorf("%s was not restored as it was", x)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
	}
}
