package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// Editors are those that connect by an entry of SSH's configuration.
var Editors = []string{"code", "cursor"}

// sshInclude is the one line of curfew's in ~/.ssh/config: the entries are files below
// ~/.ssh/curfew.
const sshInclude = "Include curfew/*.conf"

// entryHead begins an entry: which session of which data directory it is.
func entryHead(id, data string) string { return "# curfew session " + id + " of " + data }

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
func entryReaches(a *sessions.Sessions) error {
	if a.Request.DatabaseFlag == "" {
		return nil
	}
	entry := *a.Request.Process
	entry.DatabaseFlag = ""
	cfg, err := entry.Config()
	if err != nil || cfg.DatabaseURL == a.Request.DatabaseFlag {
		return err
	}
	return &runtime.Error{
		Class: runtime.Usage, Code: "database_flag",
		Err:  errors.New("no SSH entry is written: it does not keep --database-url, which may hold a password"),
		Hint: "set CURFEW_DATABASE_URL, or database_url in curfew.yaml, and leave the flag out"}
}

// editor writes the entry of a machine and opens an editor by it.
func (r *reachable) editor(ctx context.Context, o Options) error {
	var out strings.Builder
	code, err := r.run(ctx,
		agentCommand("enter", "--", "sh", "-c",
			`id -un; pwd -P; command -v sshd || ls /usr/sbin/sshd 2>/dev/null || echo -`), &out)
	if err != nil {
		return err
	}
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	if code != 0 || len(said) != 3 {
		return fmt.Errorf("ask %s for its work folder: %s", r.machine, plain.Line(out.String()))
	}
	user, folder := said[0], said[1]
	if !filepath.IsAbs(folder) || strings.ContainsFunc(folder, unicode.IsControl) { // it is an argument of the editor
		return fmt.Errorf("%s says that its work folder is %q, which is no folder", r.machine, folder)
	}
	if said[2] == "-" {
		return &runtime.Error{
			Code: "no_sshd", Err: fmt.Errorf("there is no sshd on %s", r.machine),
			Hint: "its image needs openssh-server; `curfew connect " + r.s.Name + "` works without",
		}
	}
	e, err := sessions.NewSSHEntry(r.all, r.s.Name, o.Node)
	if err != nil {
		return err
	}
	if err := writeEntry(r.all, e, &r.s, user, o); err != nil {
		return err
	}
	argv := []string{o.Editor, "--remote", "ssh-remote+" + e.Alias, folder}
	plain.Fprintf(o.Err, "ssh %s reaches %s\n", e.Alias, r.s.Name)
	program, err := exec.LookPath(o.Editor)
	if err != nil {
		plain.Fprintf(o.Err, "curfew: %s is not in PATH; where it is, give: %s\n", o.Editor, strings.Join(argv, " "))
		return nil //nolint:nilerr // the entry is there all the same
	}
	c := exec.CommandContext(ctx, program, argv[1:]...)
	c.Stdout, c.Stderr, c.Env = o.Err, o.Err, o.Environ
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// writeEntry writes an entry, and the line that includes it.
func writeEntry(a *sessions.Sessions, e *sessions.SSHEntry, s *session.Session, user string, o Options) error {
	if err := entryReaches(a); err != nil {
		return err
	}
	dir := filepath.Dir(e.Dir)
	if err := e.CreateDir(); err != nil {
		return err
	}
	data, err := filepath.Abs(a.Request.Path(a.Config.DataDir))
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(e.File(".conf")); err == nil &&
		!strings.HasSuffix(sessions.FirstLine(string(was)), " of "+data) {
		return &runtime.Error{
			Class: runtime.Usage, Code: "other_entry",
			Err:  fmt.Errorf("%s is the entry of a session of another data directory", e.File(".conf")),
			Hint: "remove it, or give this session another name",
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	proxy := []string{self, "connect", s.Name, "--stdio", "--data-dir", data}
	if o.Node > 0 {
		proxy = append(proxy, "--node", strconv.Itoa(o.Node))
	}
	if proxy, err = sessions.WithConfigFlag(a.Request, proxy); err != nil {
		return err
	}
	text, err := e.Text(entryHead(s.ID, data), user, proxy)
	if err != nil {
		return err
	}
	if err := include(dir, o.Consent); err != nil {
		return err
	}
	return durable.ReplaceBytes(e.File(".conf"), 0o600, []byte(text))
}

// Disconnect ends what connections left: at AWS those whose process was killed, and in ~/.ssh the
// entries of sessions that are over.
func Disconnect(ctx context.Context, a *sessions.Sessions) error {
	left, err := EndLeft(ctx, a)
	if left > 0 {
		err = fmt.Errorf("%s of processes that were killed could not be ended: %w", plain.Count(left, "connection"), err)
	}
	return errors.Join(err, sessions.RemoveStaleEntries(ctx, a))
}
