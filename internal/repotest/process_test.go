package repotest

import (
	"regexp"
	"strings"
	"testing"
)

// processWide matches changes of process-wide state.
var processWide = regexp.MustCompile(`\b(` + strings.Join([]string{
	`debug\.(SetGCPercent|SetMemoryLimit|FreeOSMemory|SetMaxStack|SetMaxThreads|SetTraceback)\(`,
	`runtime\.(SetBlockProfileRate|SetMutexProfileFraction|SetCPUProfileRate)\(`, `runtime\.GOMAXPROCS\([^0]`,
	`signal\.(Notify|NotifyContext|Ignore|Reset)\(`, `os\.(Exit|Setenv|Unsetenv|Clearenv|Chdir)\(`,
	`(unix|syscall)\.(Setrlimit|Prlimit|Umask|Madvise|Prctl|Setpriority|Chdir|Chroot)\(`,
	`(unix|syscall)\.SYS_(SETRLIMIT|PRLIMIT64|UMASK|MADVISE|PRCTL|SETPRIORITY|CHDIR|CHROOT)\b`,
	`klog\.(SetLogger\w*|SetOutput\w*|InitFlags|ClearLogger|EnableContextualLogging)\(`, `CaptureKlog\(`,
	`utilfeature\.DefaultMutableFeatureGate`, `apiserver\.SetProcess\(`, `oomscore\.Set\(`, `AccumulatedCopySizeLimit =`,
	`utilruntime\.(ReallyCrash|ErrorHandlers|PanicHandlers) =`, `http\.Default(Transport|Client) =`, `slog\.SetDefault\(`, `log\.SetOutput\(`,
	`otel\.Set\w+\(`, `grpclog\.SetLogger\w*\(`, `rest\.SetDefaultWarningHandler\(`, `workqueue\.SetProvider\(`, `prometheus\.(Must)?Register\(`,
}, "|") + `)`)

// TestTheLibraryLeavesItsProcessAlone checks that the package cluster leaves
// process-wide state alone: its program has its own logger, signals and limits,
// and perhaps several clusters.
func TestTheLibraryLeavesItsProcessAlone(t *testing.T) {
	allowed := map[string]string{
		"internal/bubble/bubble.go":               "for tests",
		"internal/component/apiserver/process.go": "for processes that are an API server alone, which call it themselves",
		"internal/logging/logging.go":             "likewise",
		"internal/memory/budget.go":               "reads the limit",
		"internal/store/etcd/pages.go":            "releases pages of the database that this store has mapped, and no others",
		"internal/segment/member.go":              "replaces the process, which its caller asks for, and keeps a setting across that",
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
