package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// User is a Unix user that runs a session's processes.
type User struct {
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// Groups are the supplementary groups.
	Groups []uint32 `json:"groups,omitempty"`
	// Home and Shell come from the user's account.
	Home  string `json:"home,omitempty"`
	Shell string `json:"shell,omitempty"`
}

// UserNamePattern matches names of Unix users.
var UserNamePattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// lookupTimeout bounds a lookup in a directory service.
const lookupTimeout = 10 * time.Second

// LookupUser finds a Unix user, also in a directory service (getent). It refuses root and members
// of root's group.
func LookupUser(ctx context.Context, name string) (User, error) {
	if !UserNamePattern.MatchString(name) {
		return User{}, fmt.Errorf("%q is no name of a Unix user", name)
	}
	var f []string // as in passwd(5)
	if u, err := user.Lookup(name); err == nil {
		f = []string{u.Username, "", u.Uid, u.Gid, "", u.HomeDir, ""}
	}
	if line, err := firstLine(ctx, "getent", "passwd", name); err == nil {
		if named := strings.Split(line, ":"); len(named) == 7 {
			f = named
		}
	}
	if f == nil {
		return User{}, fmt.Errorf("there is no Unix user %s", name)
	}
	uid, err := strconv.ParseUint(f[2], 10, 32)
	gid, wrong := strconv.ParseUint(f[3], 10, 32)
	if err = errors.Join(err, wrong); err != nil {
		return User{}, fmt.Errorf("read the Unix user %s: %w", name, err)
	}
	u := User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5], Shell: f[6]}
	groups, err := firstLine(ctx, "id", "-G", name)
	if err != nil {
		return User{}, fmt.Errorf("read the groups of %s: %w", name, err)
	}
	for g := range strings.FieldsSeq(groups) {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return User{}, fmt.Errorf("read the groups of %s: %w", name, err)
		}
		u.Groups = append(u.Groups, uint32(n))
	}
	if u.UID == 0 {
		return User{}, fmt.Errorf("the Unix user %s is root", name)
	}
	if u.GID == 0 || slices.Contains(u.Groups, 0) {
		return User{}, fmt.Errorf("the Unix user %s is of root's group", name)
	}
	return u, nil
}

// firstLine runs a system program and returns the first line of its output.
func firstLine(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, dir := range []string{"/usr/bin", "/bin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		c := exec.CommandContext(ctx, path, args...)
		c.Env, c.Dir = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, "/"
		out, err := c.Output()
		line, _, _ := strings.Cut(string(out), "\n")
		return line, err
	}
	return "", fmt.Errorf("there is no %s", name)
}

// CurrentUserName returns the Unix user of this process; "#" and the UID if it has no name.
func CurrentUserName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "#" + strconv.Itoa(os.Geteuid())
}

// ErrUserUnavailable means that this process cannot become the session's user.
var ErrUserUnavailable = errors.New("it cannot run as its user")

// otherUser returns a session's user; nil if it is the current one. Only root can become another
// user.
func (p *Provider) otherUser(name string) (*User, error) {
	if name == "" || name == CurrentUserName() || name == "#"+strconv.Itoa(os.Geteuid()) {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf(
			"the session runs as %s, and this process is %s and not root: %w",
			name,
			CurrentUserName(),
			ErrUserUnavailable,
		)
	}
	p.users.Lock()
	defer p.users.Unlock()
	if known, ok := p.users.users[name]; ok && time.Since(known.at) < userCacheTime {
		return known.user, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	u, err := LookupUser(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrUserUnavailable)
	}
	if p.users.users == nil {
		p.users.users = map[string]cachedUser{}
	}
	p.users.users[name] = cachedUser{&u, time.Now()}
	return &u, nil
}

// userCacheTime is how long a user lookup stays valid.
const userCacheTime = time.Minute

// userCache caches user lookups.
type userCache struct {
	sync.Mutex
	users map[string]cachedUser
}

type cachedUser struct {
	user *User
	at   time.Time
}

// credential returns the credential to run as a user; nil for the current one.
func (u *User) credential() *syscall.Credential {
	if u == nil || os.Geteuid() == int(u.UID) {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// applyTo makes a command run as the user.
func (u *User) applyTo(c *exec.Cmd) {
	if cred := u.credential(); cred != nil {
		attr := syscall.SysProcAttr{}
		if c.SysProcAttr != nil {
			attr = *c.SysProcAttr
		}
		attr.Credential = cred
		c.SysProcAttr = &attr
	}
}

func ownerOf(i fs.FileInfo) (int, bool) {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// checkTrusted checks that a folder and its parents belong to root or the current user and that
// no one else can write them.
func checkTrusted(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		i, err := os.Lstat(at)
		if err != nil {
			return err
		}
		uid, ok := ownerOf(i)
		switch sticky := i.Mode()&fs.ModeSticky != 0; {
		case !i.IsDir():
			return fmt.Errorf("%s is no folder", at)
		case ok && uid != 0 && uid != os.Geteuid():
			return fmt.Errorf("%s is another user's", at)
		case i.Mode().Perm()&0o022 != 0 && (!sticky || at == dir):
			return fmt.Errorf("others can write %s", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// sessionsDir creates the folder for files of sessions of other users, which everybody can traverse
// and no one else can write.
func (p *Provider) sessionsDir() (string, error) {
	dir := p.options.Sessions
	if dir == "" {
		return "", errors.New("no folder is set for sessions of other users (local.dir)")
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	if err := checkTrusted(dir); err != nil {
		return "", fmt.Errorf("the folder of sessions (local.dir): %w", err)
	}
	// Others have to traverse it, whatever the umask.
	return dir, os.Chmod(dir, 0o711)
}

// SessionFolders returns the folders of the documents and snapshots of a session of another user,
// below local.dir and accessible to that user only. Both are empty if it runs as the current user.
func (p *Provider) SessionFolders(sessionID, runAs string) (control, work string, err error) {
	own, err := p.otherUser(runAs)
	if err != nil || own == nil {
		return "", "", err
	}
	return filepath.Join(p.options.Sessions, sessionID, "control"), filepath.Join(p.options.Sessions,
		"work-"+own.Name), nil
}

// sessionVariables are the environment variables that session processes may inherit. All others
// belong to the service or to the person who ran the command.
var sessionVariables = []string{
	"PATH",
	"LANG",
	"LANGUAGE",
	"LC_ALL",
	"LC_COLLATE",
	"LC_CTYPE",
	"LC_MESSAGES",
	"LC_MONETARY",
	"LC_NUMERIC",
	"LC_TIME",
	"TZ",
	"TERM",
	"COLORTERM",
}

// userVariables are the variables that name the current user. Another user gets other values.
var userVariables = []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}

// storeVariables are the variables with which an agent of the same user reaches the session's
// stores. Session processes do not get them.
var storeVariables = []string{
	"AWS_",
	"SSL_CERT_FILE",
	"SSL_CERT_DIR",
	"HTTP_PROXY",
	"HTTPS_PROXY",
	"NO_PROXY",
	"http_proxy",
	"https_proxy",
	"no_proxy",
	"XDG_RUNTIME_DIR",
	"GODEBUG",
	"GOMAXPROCS",
	"GOMEMLIMIT",
}

// Environ returns the variables of env that session processes inherit.
func Environ(env []string) []string { return filterEnviron(env, sessionVariables, userVariables) }

// filterEnviron returns the listed variables of env. A name ending in "_" is a prefix.
func filterEnviron(env []string, lists ...[]string) []string {
	var out []string
	for _, v := range env {
		name, _, ok := strings.Cut(v, "=")
		if ok &&
			slices.ContainsFunc(
				slices.Concat(lists...),
				func(n string) bool { return n == name || strings.HasSuffix(n, "_") && strings.HasPrefix(name, n) },
			) {
			out = append(out, v)
		}
	}
	return out
}

// standardPath is the PATH of users without login shell.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// agentEnviron returns the environment of the agent of a user's session.
func agentEnviron(own *User, env []string) []string {
	if own == nil {
		return filterEnviron(env, sessionVariables, userVariables, storeVariables)
	}
	out := slices.DeleteFunc(filterEnviron(env, sessionVariables), func(v string) bool {
		return strings.HasPrefix(v, "PATH=")
	})
	shell := own.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	return append(out, "PATH="+standardPath, "HOME="+own.Home, "USER="+own.Name, "LOGNAME="+own.Name, "SHELL="+shell)
}
