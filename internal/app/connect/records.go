package connect

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/app/sessions"
)

// connection records an AWS connection in a file that its process holds locked. An unlocked record
// belongs to a killed process, whose connection any process ends.
type connection struct {
	// Key is the reason stored by AWS, which identifies the connection even if its id never
	// arrived.
	Key     string    `json:"key"`
	Session string    `json:"session"`
	Region  string    `json:"region"`
	Machine string    `json:"machine"`
	Began   time.Time `json:"began"`
	// ID is AWS's id; empty until AWS answered.
	ID string `json:"id,omitempty"`

	file *os.File
}

const (
	// connectionReason is the prefix of keys.
	connectionReason = "curfew connect "
	// visibilityDelay is how long AWS may hide a new connection.
	visibilityDelay = 5 * time.Minute
)

// connectionsDir returns the folder of the records.
func connectionsDir(a *sessions.Sessions) (string, error) {
	dir, err := filepath.Abs(a.Request.Path(a.Config.DataDir))
	return filepath.Join(dir, "connections"), err
}

// beginConnection records a connection before it is opened.
func beginConnection(a *sessions.Sessions, session, region, machine string) (*connection, error) {
	dir, err := connectionsDir(a)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	name := hex.EncodeToString(random)
	c := &connection{
		Key: connectionReason + name, Session: session, Region: region, Machine: machine, Began: a.Request.Now().UTC(),
	}
	// The file is renamed into place once it is locked and complete.
	hidden, path := filepath.Join(dir, "."+name), filepath.Join(dir, name+".json")
	if c.file, err = os.OpenFile(hidden, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("record a connection: %w", err)
	}
	err = syscall.Flock(int(c.file.Fd()), syscall.LOCK_EX)
	if err == nil {
		err = c.write()
	}
	if err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		c.file.Close()
		return nil, errors.Join(fmt.Errorf("record a connection: %w", err), os.Remove(hidden))
	}
	return c, nil
}

// write appends the current state; an incomplete line leaves the previous one valid.
func (c *connection) write() error {
	text, err := json.Marshal(c)
	if err == nil {
		_, err = c.file.Write(append(text, '\n'))
	}
	if err == nil {
		err = c.file.Sync()
	}
	return err
}

// endConnection ends a connection at AWS and deletes its record. After a failure the record stays
// for the next attempt.
func endConnection(ctx context.Context, a *sessions.Sessions, at connector, c *connection, sent bool) error {
	ids := []string{c.ID}
	if c.ID == "" && sent {
		var err error
		if ids, err = at.Left(ctx, c.Region, c.Machine, c.Key); err != nil {
			return err
		}
		if len(ids) == 0 && a.Request.Now().Sub(c.Began) < visibilityDelay {
			return nil // AWS may not show it yet: keep the record
		}
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		if err := at.Close(ctx, c.Region, id); err != nil {
			return err
		}
	}
	dir, err := connectionsDir(a)
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(dir, strings.TrimPrefix(c.Key, connectionReason)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// connector ends connections of an AWS account.
type connector interface {
	Left(ctx context.Context, region, machine, reason string) ([]string, error)
	Close(ctx context.Context, region, id string) error
}

// EndAbandoned ends the connections of killed processes. It returns how many remain and the first
// error.
func EndAbandoned(ctx context.Context, a *sessions.Sessions) (left int, err error) {
	dir, err := connectionsDir(a)
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return 0, err
	}
	for _, file := range files {
		ended, e := endAbandoned(ctx, a, file)
		if !ended {
			left++
			err = firstError(err, e)
		}
	}
	return left, err
}

// firstError returns the first non-nil error.
func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// endAbandoned ends the connection of a record without a live process. It returns true if nothing
// remains to be done.
func endAbandoned(ctx context.Context, a *sessions.Sessions, path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return true, nil
		}
		return false, err
	}
	c := connection{file: f}
	for d := json.NewDecoder(io.LimitReader(f, 64<<10)); ; {
		next := c
		if d.Decode(&next) != nil {
			break // the end or an incomplete line
		}
		c = next
	}
	if c.Key == "" || c.Key != connectionReason+strings.TrimSuffix(filepath.Base(path), ".json") {
		return false, fmt.Errorf("%s is no record of a connection", path)
	}
	at, err := openConnector(ctx, a, c.Region)
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := endConnection(limited, a, at, &c, true); err != nil {
		return false, err
	}
	return true, nil
}
