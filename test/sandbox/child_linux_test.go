package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/sandbox"
)

// childVariable makes the test binary start a sandbox and print the address of moto.
const childVariable = "CURFEW_SANDBOX_CHILD"

func child() int {
	s, err := sandbox.Start(context.Background(), sandbox.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("moto at " + s.MotoURL())
	time.Sleep(time.Minute) // it is killed long before
	return 0
}

func TestMotoDiesWithTheTest(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url := strings.TrimSpace(strings.TrimPrefix(line, "moto at "))
	if err != nil || !answers(url) {
		t.Errorf("the child said %q (%v), and moto does not answer there", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()     // it was killed
	for range 12_000 { // a minute
		if !answers(url) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("moto outlives the process that started it")
}

func answers(url string) bool {
	res, err := http.Get(url + "/moto-api/data.json")
	if err != nil {
		return false
	}
	res.Body.Close()
	return true
}
