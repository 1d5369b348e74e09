package checkpoint_test

import (
	"os"
	"syscall"
)

func diskUse(i os.FileInfo) int64 { return i.Sys().(*syscall.Stat_t).Blocks * 512 }
