// Package trace writes large traces of GPU machines for benchmarks.
package trace

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
)

// Write writes several days of machines with eight GPUs, minute by minute for each machine, that
// alternate between work and rest for an hour or more. During work all values differ.
func Write(to io.Writer, rows int, all bool) error {
	const gpus, minutes = 8, 1440
	rng := rand.New(rand.NewPCG(1, 2))
	out := bufio.NewWriterSize(to, 1<<20)
	header := "resource,time,gpu,gpu_util"
	if all {
		header += ",sm_active,dram_active,mem_used_bytes,mem_total_bytes,power_w,cpu_util,net_bytes"
	}
	fmt.Fprintln(out, header)
	busy, b := false, make([]byte, 0, 256)
	for i := range rows {
		machine, minute, gpu := i/(minutes*gpus), i/gpus%minutes, i%gpus
		if gpu == 0 && minute%60 == 0 {
			busy = rng.IntN(3) == 0
		}
		whole := func(n int64) { b = strconv.AppendInt(append(b, ','), rng.Int64N(n), 10) }
		decimal := func(n float64, digits int) {
			b = strconv.AppendFloat(append(b, ','), rng.Float64()*n, 'f', digits, 64)
		}
		b = strconv.AppendInt(append(b[:0], 'm'), int64(machine), 10)
		b = strconv.AppendInt(append(b, ','), int64(minute)*60, 10)
		b = strconv.AppendInt(append(b, ','), int64(gpu), 10)
		if busy {
			whole(101)
		} else {
			b = append(b, ",0"...)
		}
		switch {
		case !all:
		case busy:
			decimal(1, 3)
			decimal(1, 3)
			whole(80 << 30)
			b = append(b, ",85899345920"...)
			decimal(400, 2)
			decimal(100, 1)
			whole(1e9)
		default:
			b = append(b, ",0,0,1048576,85899345920"...)
			decimal(60, 2)
			decimal(3, 1)
			whole(1e4)
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
