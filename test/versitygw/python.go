package versitygw

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Python returns an interpreter that can import boto3 and zstandard, in a virtual environment that
// is created once per user.
func Python(t testing.TB) string {
	t.Helper()
	python, err := interpreter(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return python
}

func interpreter(ctx context.Context) (string, error) {
	const check = "import boto3, zstandard"
	if exec.CommandContext(ctx, "python3", "-c", check).Run() == nil {
		return "python3", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "curfew-test", "s3-client-1")
	python := filepath.Join(venv, "bin", "python")
	if exec.CommandContext(ctx, python, "-c", check).Run() == nil {
		return python, nil
	}
	if err := os.MkdirAll(filepath.Dir(venv), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(venv), "s3-client-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	for _, args := range [][]string{
		{"python3", "-m", "venv", fresh},
		{
			filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"boto3==1.43.11", "zstandard==0.25.0",
		},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install an S3 client for Python: %w\n%s", err, out)
		}
	}
	if err := os.Rename(fresh, venv); err != nil && exec.CommandContext(ctx, python, "-c", check).Run() != nil {
		return "", err
	}
	return python, nil
}
