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

// Login is the stored token of one service.
type Login struct {
	// Server is the scheme and host of the service.
	Server string `json:"server"`
	// Token is the secret.
	Token string `json:"token"`
	// Name is the person or program that the token authenticates.
	Name string `json:"name"`
	// Session reports that signing in created the token, so that signing out revokes it.
	Session bool `json:"session,omitempty"`
	// ExpiresAt is the expiry of the token; nil if unknown.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Logins stores tokens, one file per service, readable by the user only.
type Logins struct {
	// Dir is the directory of the files.
	Dir string
}

// ErrNoLogin is returned if no token is stored for a service.
var ErrNoLogin = errors.New("no token is kept for it")

// file returns the file of a service, named by its scheme and host in characters that every file
// system allows. No two services share a file.
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

// Load returns the stored token of a service, or ErrNoLogin. A file that other users can read is an
// error, because its token is no longer secret.
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

// Save stores a token and replaces the previous one of its service.
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

// Remove deletes the stored token of a service. It succeeds if there is none.
func (l Logins) Remove(server string) error {
	if l.Dir == "" {
		return nil
	}
	if err := os.Remove(l.file(server)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the token for %s: %w", server, err)
	}
	return nil
}
