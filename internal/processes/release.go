package processes

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ReleaseProgram unmaps the resident pages of this program's code and constants
// (madvise(2), MADV_DONTNEED), most of which are needed only at the start.
// Pages that are needed again are read from the page cache. If a dynamic linker
// has loaded the program, the constants are kept: the linker may have changed
// them before it protected them.
func ReleaseProgram() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	type area struct{ start, end uintptr }
	var code, constants []area
	alone := true
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		if !strings.HasSuffix(lines.Text(), " "+self) {
			alone = alone && !strings.Contains(fields[1], "x")
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return fmt.Errorf("read /proc/self/maps: %w", err)
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			return fmt.Errorf("read /proc/self/maps: %w", err)
		}
		switch fields[1] {
		case "r-xp":
			code = append(code, area{uintptr(start), uintptr(end)})
		case "r--p":
			constants = append(constants, area{uintptr(start), uintptr(end)})
		}
	}
	if alone {
		code = append(code, constants...)
	}
	for _, a := range code {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, a.start, a.end-a.start, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("release %x-%x: %w", a.start, a.end, errno)
		}
	}
	return nil
}
