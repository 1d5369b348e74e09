package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
)

// Login is a token as it is kept for one service.
type Login struct {
	// Server is the URL of the service.
	Server string `json:"server"`
	// Token is the secret.
	Token string `json:"token"`
	// Name is the person or program that it speaks for.
	Name string `json:"name"`
	// Session is true if signing in made the token, so that signing out ends it.
	Session bool `json:"session,omitempty"`
	// ExpiresAt is when it ends; nil where that is not known.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Logins keeps tokens, one file for each service, which only the user can read.
type Logins struct {
	// Dir is the directory of the files.
	Dir string
}

// ErrNoLogin is that no token is kept for a service.
var ErrNoLogin = errors.New("no token is kept for it")

// file is the file of a service: its scheme and host, in characters that every file system
// has. Two services never share one.
func (l Logins) file(server string) string {
	scheme, host, _ := strings.Cut(server, "://")
	var name strings.Builder
	for _, b := range []byte(host) {
		switch {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '.', b == '-':
			name.WriteByte(b)
		case b == ':':
			name.WriteByte('_')
		default:
			fmt.Fprintf(&name, "=%02x", b)
		}
	}
	return filepath.Join(l.Dir, scheme+"_"+name.String()+".json")
}

// Load returns the token that is kept for a service, or ErrNoLogin. A file that others can
// read is an error: the token is not a secret any more.
func (l Logins) Load(server string) (Login, error) {
	var out Login
	if l.Dir == "" {
		return out, ErrNoLogin
	}
	name := l.file(server)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, ErrNoLogin
	}
	if err != nil {
		return out, fmt.Errorf("read the token for %s: %w", server, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return out, fmt.Errorf("read the token for %s: %w", server, err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return out, fmt.Errorf("the token for %s is not used: others can read %s (mode %04o)", server, name,
			st.Mode().Perm())
	}
	if err := json.NewDecoder(f).Decode(&out); err != nil || out.Server != server || out.Token == "" {
		return Login{}, fmt.Errorf("the token for %s is not used: %s is not what `curfew login` writes", server, name)
	}
	return out, nil
}

// Save keeps a token in place of the one before.
func (l Logins) Save(v Login) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the token for %s: %w", v.Server, err)
		}
	}()
	if l.Dir == "" {
		return errors.New("there is no home directory to keep it in")
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(l.file(v.Server), 0o600, append(text, '\n'))
}

// Remove forgets the token of a service; one that is not kept is forgotten already.
func (l Logins) Remove(server string) error {
	if l.Dir == "" {
		return nil
	}
	if err := os.Remove(l.file(server)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the token for %s: %w", server, err)
	}
	return nil
}
