package repotest

import (
	"regexp"
	"strings"
	"testing"
)

// processWide are uses of what a process has once.
var processWide = regexp.MustCompile(`\b(` + strings.Join([]string{
	`debug\.(SetGCPercent|SetMemoryLimit|FreeOSMemory|SetMaxStack|SetMaxThreads|SetTraceback)\(`,
	`runtime\.(SetBlockProfileRate|SetMutexProfileFraction|SetCPUProfileRate)\(`, `runtime\.GOMAXPROCS\([^0]`,
	`signal\.(Notify|NotifyContext|Ignore|Reset)\(`, `os\.(Exit|Setenv|Unsetenv|Clearenv|Chdir)\(`,
	`(unix|syscall)\.(Setrlimit|Prlimit|Umask|Madvise|Prctl|Setpriority|Chdir|Chroot)\(`,
	`klog\.(SetLogger\w*|SetOutput\w*|InitFlags|ClearLogger|EnableContextualLogging)\(`, `CaptureKlog\(`,
	`utilfeature\.DefaultMutableFeatureGate`, `apiserver\.SetProcess\(`, `AccumulatedCopySizeLimit =`,
	`utilruntime\.(ReallyCrash|ErrorHandlers|PanicHandlers) =`, `http\.Default(Transport|Client) =`, `slog\.SetDefault\(`, `log\.SetOutput\(`,
	`otel\.Set\w+\(`, `grpclog\.SetLogger\w*\(`, `rest\.SetDefaultWarningHandler\(`, `workqueue\.SetProvider\(`, `prometheus\.(Must)?Register\(`,
}, "|") + `)`)

// A program that uses the package cluster has its own logger, signals and
// limits, and perhaps several clusters.
func TestTheLibraryLeavesItsProcessAlone(t *testing.T) {
	allowed := map[string]string{
		"internal/component/apiserver/process.go": "for processes that are an API server alone, which call it themselves",
		"internal/logging/logging.go":             "likewise",
		"internal/memory/guard.go":                "reads the limit",
	}
	for file := range goFiles(t) {
		library := strings.HasPrefix(file, "cluster/") || strings.HasPrefix(file, "internal/") && !strings.HasPrefix(file, "internal/processes/")
		if !library || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "/generate/main.go") || allowed[file] != "" {
			continue
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			if code, _, _ := strings.Cut(line, "//"); processWide.MatchString(code) {
				t.Errorf("%s:%d: %s: what a process has once belongs to cmd/coracle", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}
