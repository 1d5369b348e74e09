//go:build !linux

package checkpoint_test

import "os"

func diskUse(os.FileInfo) int64 { return 0 }
