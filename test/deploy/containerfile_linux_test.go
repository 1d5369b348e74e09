package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// step is one instruction of a Containerfile.
type step struct{ verb, args string }

// stages reads a Containerfile: each stage begins with its FROM.
func stages(t *testing.T, text string) [][]step {
	t.Helper()
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	known := []string{"FROM", "WORKDIR", "COPY", "ARG", "RUN", "USER", "ENV", "EXPOSE", "VOLUME", "ENTRYPOINT"}
	var all [][]step
	for line := range strings.Lines(text) {
		verb, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case verb == "":
			continue
		case !slices.Contains(known, verb):
			t.Fatalf("the test does not know %s", verb)
		case verb == "FROM":
			all = append(all, nil)
		case len(all) == 0:
			t.Fatalf("%s comes before FROM", verb)
		}
		all[len(all)-1] = append(all[len(all)-1], step{verb, strings.Join(strings.Fields(args), " ")})
	}
	return all
}

// of returns the arguments of all steps of a verb.
func of(steps []step, verb string) []string {
	var out []string
	for _, s := range steps {
		if s.verb == verb {
			out = append(out, s.args)
		}
	}
	return out
}

// container returns the two stages of the repository's Containerfile.
func container(t *testing.T) (build, image []step) {
	t.Helper()
	text, err := os.ReadFile("../../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	all := stages(t, string(text))
	if len(all) != 2 || !strings.HasSuffix(all[0][0].args, " AS build") || all[1][0].args != "scratch" {
		t.Fatalf("stages are %v", all)
	}
	return all[0], all[1]
}

// TestContainerfile checks the file against the repository: the Go version, the files copied
// between stages, the user, the port and the program.
func TestContainerfile(t *testing.T) {
	build, image := container(t)
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	tag := regexp.MustCompile(`golang:([0-9.]+) `).FindStringSubmatch(build[0].args)
	wants := regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`).FindStringSubmatch(string(mod))
	if tag == nil || wants == nil || tag[1] != wants[1] {
		t.Errorf("it builds with %v, go.mod wants %v", tag, wants)
	}
	made := strings.Join(of(build, "RUN"), " ")
	for _, c := range of(image, "COPY") {
		from := strings.Fields(c)[len(strings.Fields(c))-2]
		if !strings.HasPrefix(c, "--from=build ") || !strings.Contains(made, " "+from) {
			t.Errorf("COPY %s: the build makes no %s", c, from)
		}
	}
	var entry []string
	if err := json.Unmarshal([]byte(of(image, "ENTRYPOINT")[0]), &entry); err != nil || len(entry) != 1 ||
		!strings.Contains(made, "/image/usr/local/bin/"+entry[0]+" ") ||
		!strings.Contains(of(image, "ENV")[0], "PATH=/usr/local/bin") {
		t.Errorf("it starts %v, %v", entry, err)
	}
	if user := of(image, "USER"); len(user) != 1 ||
		!regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user[0]) ||
		!strings.Contains(strings.Join(of(image, "COPY"), " "), "--chown="+user[0]+" /data /data") {
		t.Errorf("its user is %v", user)
	}
}

// TestContainerRuns carries out the steps of the file in a folder and, if permitted, runs the image
// there in isolation as its user: it audits the simulated account and stores the result in /data.
func TestContainerRuns(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it builds the program; make test-slow runs it")
	}
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil {
		t.Skip("ca-certificates is not installed")
	}
	build, image := container(t)
	dir := t.TempDir()
	there := regexp.MustCompile(`([ =])/(image|data)\b`)
	for _, run := range of(build, "RUN") {
		run = there.ReplaceAllString(strings.ReplaceAll(run, "${VERSION}", "tested"), "${1}"+dir+"/$2")
		c := exec.CommandContext(t.Context(), "/bin/sh", "-ec", run)
		c.Dir = "../.." // WORKDIR, after COPY . .
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", run, err, out)
		}
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"cp", "-a", dir + "/image/.", root}, {"cp", "-a", dir + "/data", root}, {"mkdir", root + "/project"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	program, err := elf.Open(filepath.Join(root, "usr/local/bin/curfew"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if needs, err := program.ImportedLibraries(); err != nil || len(needs) > 0 || program.Section(".interp") != nil {
		t.Errorf("the program needs %v, %v: an empty image has no library", needs, err)
	}
	for name, mode := range map[string]os.FileMode{
		"tmp": os.ModeDir | os.ModeSticky | 0o777, "data": os.ModeDir | 0o700,
		"etc/ssl/certs/ca-certificates.crt": 0o644,
	} {
		if st, err := os.Stat(filepath.Join(root, name)); err != nil || st.Mode() != mode {
			t.Errorf("/%s: %v, %v, want %v", name, st, err, mode)
		}
	}
	user, group, _ := strings.Cut(of(image, "USER")[0], ":")
	uid, errUser := strconv.ParseUint(user, 10, 32)
	gid, errGroup := strconv.ParseUint(group, 10, 32)
	if errUser != nil || errGroup != nil {
		t.Fatal(errUser, errGroup)
	}
	if os.Getuid() != 0 {
		t.Log("only root may run it in a root of its own")
		return
	}
	if err := os.Chown(filepath.Join(root, "data"), int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "/usr/local/bin/curfew", args...)
		c.Dir, c.Env = of(image, "WORKDIR")[0], append(strings.Fields(of(image, "ENV")[0]), "CURFEW_IDENTITY=ana")
		c.SysProcAttr = &syscall.SysProcAttr{
			Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		}
		var out, failed bytes.Buffer
		c.Stdout, c.Stderr = &out, &failed
		if err := c.Run(); err != nil {
			t.Fatalf("curfew %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), failed.String())
		}
		return out.String()
	}
	if got := run("--version"); got != "curfew tested\n" {
		t.Errorf("its version is %q", got)
	}
	if got := run("scan", "--demo", "--quiet", "-o", "json"); !strings.Contains(got, `"schema": "curfew.scan/v1"`) {
		t.Errorf("the audit is %.300s", got)
	}
	state, err := os.Stat(filepath.Join(root, "data", "curfew.db"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := state.Sys().(*syscall.Stat_t).Uid; fmt.Sprint(owner) != user {
		t.Errorf("the state is of user %d, not %s", owner, user)
	}
	if got := run("scan", "--last", "-o", "json"); !strings.Contains(got, `"schema": "curfew.scan/v1"`) {
		t.Errorf("what was kept is %.300s", got)
	}
}
