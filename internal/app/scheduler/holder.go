package scheduler

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// ProcessName names this process among those that share a state.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(id))
}
