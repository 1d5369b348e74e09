package main

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The generators of clients, as of their newest releases of 2026-11.
const (
	pythonGenerator, pythonFormatter           = "openapi-python-client==0.29.1", "ruff==0.14.6"
	scriptGenerator, compiler, typesOfPlatform = "@hey-api/openapi-ts@0.99.0",
		"typescript@5.9.3", "@types/node@20.19.25"
)

// TestGeneratedClients generates a client in Python and one in TypeScript from the OpenAPI
// document, and checks that every document of the API that each reads equals the response.
func TestGeneratedClients(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it installs generators of clients; make test-slow runs it")
	}
	s, err := build(t.Context(), t.TempDir(), "../..", *seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(); s.state.Close() })
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	document, err := filepath.Abs("../../schemas/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	type parameter struct{ Name string }
	var spec struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []parameter
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	inPython, inScript := map[string]any{}, map[string]any{}
	for path, methods := range spec.Paths {
		get, ok := methods["get"]
		if !ok || get.OperationID == "stream-events" {
			continue
		}
		id, query := s.arguments(path)
		maps.DeleteFunc(query, func(name string, _ any) bool {
			return !slices.ContainsFunc(get.Parameters, func(p parameter) bool { return p.Name == name })
		})
		flat, nested := map[string]any{}, map[string]any{}
		for name, value := range query {
			flat[name] = value
		}
		nested["query"] = query
		if strings.Contains(path, "{id}") {
			flat["id"], nested["path"] = id, map[string]string{"id": id}
		}
		inPython[strings.ReplaceAll(get.OperationID, "-", "_")], inScript[camel(get.OperationID)] = flat, nested
	}
	check, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("Python", func(t *testing.T) {
		dir := t.TempDir()
		bin := pythonWith(t, "clients-0.29.1", pythonGenerator, pythonFormatter)
		path := "PATH=" + bin + ":" + os.Getenv("PATH")
		command(t, dir, []string{path}, filepath.Join(bin, "openapi-python-client"), "generate", "--path", document,
			"--output-path", filepath.Join(dir, "client"), "--fail-on-warning")
		reads(t, inPython, server.URL, s.admin, dir, []string{"PYTHONPATH=" + filepath.Join(dir, "client")},
			filepath.Join(bin, "python"), filepath.Join(check, "check.py"))
	})
	t.Run("TypeScript", func(t *testing.T) {
		if _, err := exec.LookPath("npm"); err != nil {
			t.Fatal("npm is not installed (Debian: apt-get install npm)")
		}
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join(check, "check.ts"))
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"check.ts": string(text), "package.json": `{"type": "module", "private": true}`,
			"tsconfig.json": `{"compilerOptions": {"strict": true, "target": "es2023", "module": "nodenext", "types": ["node"]}, "files": ["check.ts"]}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		command(t, dir, nil, "npm", "install", "--silent", "--no-audit", "--no-fund", scriptGenerator, compiler,
			typesOfPlatform)
		bin := filepath.Join(dir, "node_modules", ".bin")
		command(t, dir, nil, filepath.Join(bin, "openapi-ts"), "--input", document, "--output", "generated",
			"--plugins", "@hey-api/client-fetch", "@hey-api/sdk", "@hey-api/typescript")
		command(t, dir, nil, filepath.Join(bin, "tsc"), "--project", ".")
		reads(t, inScript, server.URL, s.admin, dir, nil, "node", "check.js")
	})
}

// reads runs a program that reads operations with a generated client, and prints what it read and
// which errors it found.
func reads(t *testing.T, operations map[string]any, url, token, dir string, env []string, name string,
	args ...string) {
	t.Helper()
	arguments, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	out := command(t, dir, append(env, "API_URL="+url, "API_TOKEN="+token, "API_ARGUMENTS="+string(arguments)), name,
		args...)
	var got struct{ Read, Wrong []string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("it printed %s: %v", out, err)
	}
	for name := range operations {
		if !slices.Contains(got.Read, name) {
			t.Errorf("%s was not read", name)
		}
	}
	for _, wrong := range got.Wrong {
		t.Error(wrong)
	}
}

// command runs a program and returns its output. It may only fail if it prints something.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && !json.Valid(out) {
		t.Fatalf("%s %s: %v: %s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// camel returns the TypeScript name of a hyphenated operation: listKeeps.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}
