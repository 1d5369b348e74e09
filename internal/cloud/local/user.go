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

// User is a Unix user that the processes of a session run as.
type User struct {
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// Groups are the supplementary groups.
	Groups []uint32 `json:"groups,omitempty"`
	// Home and Shell are those of the user's account.
	Home  string `json:"home,omitempty"`
	Shell string `json:"shell,omitempty"`
}

// UserName is the form of the name of a Unix user.
var UserName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// lookupTimeout bounds a look-up in a directory service.
const lookupTimeout = 10 * time.Second

// LookupUser finds a Unix user of this machine, also where a directory service knows it (getent).
// Root, and who is of root's group, is refused.
func LookupUser(ctx context.Context, name string) (User, error) {
	if !UserName.MatchString(name) {
		return User{}, fmt.Errorf("%q is no name of a Unix user", name)
	}
	var f []string // as in passwd(5)
	if u, err := user.Lookup(name); err == nil {
		f = []string{u.Username, "", u.Uid, u.Gid, "", u.HomeDir, ""}
	}
	if line, err := tool(ctx, "getent", "passwd", name); err == nil {
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
	groups, err := tool(ctx, "id", "-G", name)
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

// tool runs a program of the system and returns its first line.
func tool(ctx context.Context, name string, args ...string) (string, error) {
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

// Self names the Unix user of this process; "#" and the number where it has no name.
func Self() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "#" + strconv.Itoa(os.Geteuid())
}

// ErrUser is returned where a session is to run as a user that this process cannot become.
var ErrUser = errors.New("it cannot run as its user")

// other is the user that a session runs as, where that is another than this process's; nil where
// it is this one. Only root can become another user, and becomes root for no one else.
func (p *Provider) other(name string) (*User, error) {
	if name == "" || name == Self() || name == "#"+strconv.Itoa(os.Geteuid()) {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf(
			"the session runs as %s, and this process is %s and not root: %w",
			name,
			Self(),
			ErrUser,
		)
	}
	p.users.Lock()
	defer p.users.Unlock()
	if known, ok := p.users.known[name]; ok && time.Since(known.at) < userAge {
		return known.user, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	u, err := LookupUser(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrUser)
	}
	if p.users.known == nil {
		p.users.known = map[string]knownUser{}
	}
	p.users.known[name] = knownUser{&u, time.Now()}
	return &u, nil
}

// userAge is how long a user that was looked up is taken to be the same.
const userAge = time.Minute

// knownUsers are the users that were looked up of late.
type knownUsers struct {
	sync.Mutex
	known map[string]knownUser
}

type knownUser struct {
	user *User
	at   time.Time
}

// credential is what a process is started with to be of a user; nil for this process's own.
func (u *User) credential() *syscall.Credential {
	if u == nil || os.Geteuid() == int(u.UID) {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// as has a command run as a user.
func (u *User) as(c *exec.Cmd) {
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

// trusted checks that a folder and those above it are root's, or of this process's user, and that
// no one else can write them, so that what is in it stays what it is.
func trusted(dir string) error {
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

// sessionsDir makes the folder of the files of sessions that run as other users. All can enter it,
// and no one else can write it.
func (p *Provider) sessionsDir() (string, error) {
	dir := p.o.Sessions
	if dir == "" {
		return "", errors.New("no folder is set for sessions of other users (local.dir)")
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	if err := trusted(dir); err != nil {
		return "", fmt.Errorf("the folder of sessions (local.dir): %w", err)
	}
	// Others have to pass, whatever the umask is.
	return dir, os.Chmod(dir, 0o711)
}

// Places are the folders of the documents and of the snapshots of a session that runs as another
// user: below local.dir, each with access for that user alone. Both are empty where it runs as this
// process.
func (p *Provider) Places(sessionID, runAs string) (control, work string, err error) {
	own, err := p.other(runAs)
	if err != nil || own == nil {
		return "", "", err
	}
	return filepath.Join(p.o.Sessions, sessionID, "control"), filepath.Join(p.o.Sessions, "work-"+own.Name), nil
}

// environment are the variables that processes of sessions may have from whoever starts them.
// Everything else is of the service, or of the person who gave the command, and stays with them.
var environment = []string{
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

// ofUser are those that name the user of this process. Another user has others.
var ofUser = []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}

// ofStores are those with which an agent of the same user reaches the stores of its session. No
// process of the session gets them.
var ofStores = []string{
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

// Environ are the variables of env that processes of a session get.
func Environ(env []string) []string { return allowed(env, environment, ofUser) }

// allowed are the variables of env in lists. A name that ends in "_" stands for all that begin so.
func allowed(env []string, lists ...[]string) []string {
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

// standardPath is the PATH of users that have none from a login.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// agentEnviron is the environment of the agent of a session that runs as a user.
func agentEnviron(own *User, env []string) []string {
	if own == nil {
		return allowed(env, environment, ofUser, ofStores)
	}
	out := slices.DeleteFunc(allowed(env, environment), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	shell := own.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	return append(out, "PATH="+standardPath, "HOME="+own.Home, "USER="+own.Name, "LOGNAME="+own.Name, "SHELL="+shell)
}
