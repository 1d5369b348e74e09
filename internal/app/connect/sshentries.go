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

// Editors are the editors that connect through an SSH entry.
var Editors = []string{"code", "cursor"}

// sshInclude is curfew's only line in ~/.ssh/config; the entries are files in ~/.ssh/curfew.
const sshInclude = "Include curfew/*.conf"

// entryHeader returns the first line of an entry, which names the session and the data directory.
func entryHeader(id, data string) string { return "# curfew session " + id + " of " + data }

// addInclude adds the include line to ~/.ssh/config after confirmation. The rest of the file, its
// mode and its link target stay unchanged.
func addInclude(dir string, consent func(line, file string) error) error {
	file := filepath.Join(dir, "config")
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hasInclude(string(before)) {
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

// hasInclude reports whether the line is present and applies to every host: before the first Host
// or Match.
func hasInclude(config string) bool {
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

// checkEntryState refuses an entry whose command would not find the database because only a flag
// names it. The entry cannot repeat that flag, since a URL may hold a password.
func checkEntryState(a *sessions.Sessions) error {
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

// editor writes a machine's entry and opens an editor with it.
func (r *awsMachine) editor(ctx context.Context, o Options) error {
	var out strings.Builder
	code, err := r.run(ctx,
		agentCommand("enter", "--", "sh", "-c",
			`id -un; pwd -P; command -v sshd || ls /usr/sbin/sshd 2>/dev/null || echo -`), &out)
	if err != nil {
		return err
	}
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	if code != 0 || len(said) != 3 {
		return fmt.Errorf("ask %s for its work folder: %s", r.machineID, plain.Line(out.String()))
	}
	user, folder := said[0], said[1]
	// the folder becomes an argument of the editor
	if !filepath.IsAbs(folder) || strings.ContainsFunc(folder, unicode.IsControl) {
		return fmt.Errorf("%s says that its work folder is %q, which is no folder", r.machineID, folder)
	}
	if said[2] == "-" {
		return &runtime.Error{
			Code: "no_sshd", Err: fmt.Errorf("there is no sshd on %s", r.machineID),
			Hint: "its image needs openssh-server; `curfew connect " + r.session.Name + "` works without",
		}
	}
	e, err := sessions.NewSSHEntry(r.sessions, r.session.Name, o.Node)
	if err != nil {
		return err
	}
	if err := writeEntry(r.sessions, e, &r.session, user, o); err != nil {
		return err
	}
	argv := []string{o.Editor, "--remote", "ssh-remote+" + e.Alias, folder}
	plain.Fprintf(o.Err, "ssh %s reaches %s\n", e.Alias, r.session.Name)
	program, err := exec.LookPath(o.Editor)
	if err != nil {
		plain.Fprintf(o.Err, "curfew: %s is not in PATH; where it is, give: %s\n", o.Editor, strings.Join(argv, " "))
		return nil //nolint:nilerr // the entry works all the same
	}
	c := exec.CommandContext(ctx, program, argv[1:]...)
	c.Stdout, c.Stderr, c.Env = o.Err, o.Err, o.Environ
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// writeEntry writes an entry and the include line.
func writeEntry(a *sessions.Sessions, e *sessions.SSHEntry, s *session.Session, user string, o Options) error {
	if err := checkEntryState(a); err != nil {
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
	text, err := e.Text(entryHeader(s.ID, data), user, proxy)
	if err != nil {
		return err
	}
	if err := addInclude(dir, o.Confirm); err != nil {
		return err
	}
	return durable.ReplaceBytes(e.File(".conf"), 0o600, []byte(text))
}

// Disconnect ends the AWS connections of killed processes and removes SSH entries of ended
// sessions.
func Disconnect(ctx context.Context, a *sessions.Sessions) error {
	left, err := EndAbandoned(ctx, a)
	if left > 0 {
		err = fmt.Errorf("%s of processes that were killed could not be ended: %w",
			plain.Count(left, "connection"), err)
	}
	return errors.Join(err, sessions.RemoveStaleEntries(ctx, a))
}
