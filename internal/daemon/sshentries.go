package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// Editors are those that connect by an entry of SSH's configuration.
var Editors = []string{"code", "cursor"}

// sshInclude is the one line of curfew's in ~/.ssh/config: the entries are files below
// ~/.ssh/curfew.
const sshInclude = "Include curfew/*.conf"

// sshEntry is the entry of a machine in SSH's configuration. Its files are named by its alias:
// .conf is the entry; .known has the key of the machine, .agent the key of the connection while
// it is being made, and .lock says whose turn that is.
type sshEntry struct {
	dir, alias string
}

// sshDir is the folder of the person's SSH files.
func (a *Sessions) sshDir() (string, error) {
	home, ok := a.rt.Lookup("HOME")
	if !ok || !filepath.IsAbs(home) {
		return "", &Error{Class: Usage, Code: "no_home", Err: errors.New("there is no home folder for an entry in ~/.ssh"), Hint: "set HOME"}
	}
	return filepath.Join(home, ".ssh"), nil
}

// sshEntryOf names the entry of a machine.
func (a *Sessions) sshEntryOf(name string, node int) (*sshEntry, error) {
	dir, err := a.sshDir()
	if err != nil {
		return nil, err
	}
	alias := "curfew-" + name
	if node > 0 {
		alias += "-" + strconv.Itoa(node)
	}
	e := &sshEntry{filepath.Join(dir, "curfew"), alias}
	const longest = 100 // what a socket of every system takes
	if n := len(e.file(".agent")); n > longest {
		return nil, &Error{Class: Usage, Code: "usage", Err: fmt.Errorf("%s has %d bytes, and the path of a socket has at most %d", e.file(".agent"), n, longest), Hint: "give the session a shorter name"}
	}
	return e, nil
}

func (e *sshEntry) file(suffix string) string { return filepath.Join(e.dir, e.alias+suffix) }

// turn waits until no other connection of the entry is being made.
func (e *sshEntry) turn(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := flockIn(ctx, e.file(".lock"))
	if err != nil {
		return nil, fmt.Errorf("wait for another connection of %s: %w", e.alias, err)
	}
	e.clean() // what a process left that was killed
	return f, nil
}

// clean removes what is there only while a connection is made.
func (e *sshEntry) clean() {
	for _, suffix := range []string{".agent", ".known"} {
		_ = os.Remove(e.file(suffix)) // it may not be there
	}
}

// entryHead begins an entry: which session of which data directory it is.
func entryHead(id, data string) string { return "# curfew session " + id + " of " + data }

// text is the entry as SSH reads it.
func (e *sshEntry) text(head, user string, proxy []string) string {
	words := make([]string, len(proxy))
	for i, w := range proxy {
		words[i] = strings.ReplaceAll(plain.Shell(w), "%", "%%")
	}
	quoted := func(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }
	return head + `
# Written by ` + "`curfew connect`" + `, and removed when the session ends.
Host ` + e.alias + `
  User ` + user + `
  HostKeyAlias ` + e.alias + `
  UserKnownHostsFile ` + quoted(e.file(".known")) + `
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  IdentityAgent ` + quoted(e.file(".agent")) + `
  IdentityFile none
  IdentitiesOnly no
  PreferredAuthentications publickey
  ForwardAgent no
  ConnectTimeout 120
  ServerAliveInterval 30
  ServerAliveCountMax 4
  ProxyCommand ` + strings.Join(words, " ") + "\n"
}

// include adds the line to ~/.ssh/config where it is not there, with consent. Nothing else of
// the file changes: its mode, its target where it is a link, and every other byte stay.
func include(dir string, consent func(line, file string) error) error {
	file := filepath.Join(dir, "config")
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if included(string(before)) {
		return nil
	}
	if err := consent(sshInclude, file); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	return durable.ReplaceBytes(file, mode, append([]byte(sshInclude+"\n"), before...))
}

// included says whether a configuration has the line where it counts for every host: before
// the first Host or Match.
func included(config string) bool {
	for line := range strings.Lines(config) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(word) {
		case "host", "match":
			return false
		case "include":
			if strings.TrimSpace(rest) == strings.TrimPrefix(sshInclude, "Include ") {
				return true
			}
		}
	}
	return false
}

// entryReaches refuses an entry whose command would not find the state: a database that only a
// flag names. The entry cannot name it, because a URL may hold a password.
func (a *Sessions) entryReaches() error {
	if a.rt.DatabaseFlag == "" {
		return nil
	}
	entry := *a.rt.Process
	entry.DatabaseFlag = ""
	cfg, err := entry.Config()
	if err != nil || cfg.DatabaseURL == a.rt.DatabaseFlag {
		return err
	}
	return &Error{Class: Usage, Code: "database_flag", Err: errors.New("no SSH entry is written: it does not keep --database-url, which may hold a password"),
		Hint: "set CURFEW_DATABASE_URL, or database_url in curfew.yaml, and leave the flag out"}
}

// editor writes the entry of a machine and opens an editor by it.
func (r *reach) editor(ctx context.Context, o ConnectOptions) error {
	var out strings.Builder
	code, err := r.run(ctx, agentCommand("enter", "--", "sh", "-c", `id -un; pwd -P; command -v sshd || ls /usr/sbin/sshd 2>/dev/null || echo -`), &out)
	if err != nil {
		return err
	}
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	if code != 0 || len(said) != 3 {
		return fmt.Errorf("ask %s for its work folder: %s", r.machine, plain.Line(out.String()))
	}
	user, folder := said[0], said[1]
	if said[2] == "-" {
		return &Error{Code: "no_sshd", Err: fmt.Errorf("there is no sshd on %s", r.machine), Hint: "its image needs openssh-server; `curfew connect " + r.s.Name + "` works without"}
	}
	e, err := r.all.sshEntryOf(r.s.Name, o.Node)
	if err != nil {
		return err
	}
	if err := r.all.writeEntry(e, &r.s, user, o); err != nil {
		return err
	}
	argv := []string{o.Editor, "--remote", "ssh-remote+" + e.alias, folder}
	plain.Fprintf(o.Err, "ssh %s reaches %s\n", e.alias, r.s.Name)
	program, err := exec.LookPath(o.Editor)
	if err != nil {
		plain.Fprintf(o.Err, "curfew: %s is not in PATH; where it is, give: %s\n", o.Editor, strings.Join(argv, " "))
		return nil //nolint:nilerr // the entry is there all the same
	}
	c := exec.CommandContext(ctx, program, argv[1:]...) //nolint:gosec // the editor of the person
	c.Stdout, c.Stderr, c.Env = o.Err, o.Err, o.Environ
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// writeEntry writes an entry, and the line that includes it.
func (a *Sessions) writeEntry(e *sshEntry, s *session.Session, user string, o ConnectOptions) error {
	if err := a.entryReaches(); err != nil {
		return err
	}
	dir := filepath.Dir(e.dir)
	for _, d := range []string{dir, e.dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	data, err := filepath.Abs(a.rt.Path(a.cfg.DataDir))
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(e.file(".conf")); err == nil && !strings.HasSuffix(firstLine(string(was)), " of "+data) {
		return &Error{Class: Usage, Code: "other_entry", Err: fmt.Errorf("%s is the entry of a session of another data directory", e.file(".conf")), Hint: "remove it, or give this session another name"}
	}
	if err := include(dir, o.Consent); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	proxy := []string{self, "connect", s.Name, "--stdio", "--data-dir", data}
	if o.Node > 0 {
		proxy = append(proxy, "--node", strconv.Itoa(o.Node))
	}
	if proxy, err = a.rt.underConfig(proxy); err != nil {
		return err
	}
	return durable.ReplaceBytes(e.file(".conf"), 0o600, []byte(e.text(entryHead(s.ID, data), user, proxy)))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TidyEntries removes the entries of sessions of this data directory that are over.
func (a *Sessions) TidyEntries(ctx context.Context) error {
	dir, err := a.sshDir()
	if err != nil {
		return nil //nolint:nilerr // without a home there are no entries
	}
	files, err := filepath.Glob(filepath.Join(dir, "curfew", "*.conf"))
	if err != nil || len(files) == 0 {
		return err
	}
	data, err := filepath.Abs(a.rt.Path(a.cfg.DataDir))
	if err != nil {
		return err
	}
	open, err := a.store.Sessions().Sessions(ctx, session.Query{Open: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		id, is := strings.CutPrefix(firstLine(string(text)), "# curfew session ")
		id, is2 := strings.CutSuffix(id, " of "+data)
		if !is || !is2 || slices.ContainsFunc(open, func(s session.Session) bool { return s.ID == id && s.State != session.Ending }) {
			continue
		}
		e := &sshEntry{filepath.Dir(file), strings.TrimSuffix(filepath.Base(file), ".conf")}
		e.clean()
		for _, suffix := range []string{".lock", ".conf"} {
			if err := os.Remove(e.file(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Disconnect ends what connections left: at AWS those whose process was killed, and in ~/.ssh the
// entries of sessions that are over.
func (a *Sessions) Disconnect(ctx context.Context) error {
	left, err := a.EndLeft(ctx)
	if left > 0 {
		err = fmt.Errorf("%s of processes that were killed could not be ended: %w", plain.Count(left, "connection"), err)
	}
	return errors.Join(err, a.TidyEntries(ctx))
}
