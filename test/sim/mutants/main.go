// Command mutants shows that the simulation in test/sim finds errors. Each patch in
// the folder patches puts one back into the code. The command runs the simulation on
// the changed code until a rule is broken, and prints the seed and what the rule says.
// Files of the tree do not change, because the compiler reads changed copies.
//
// It fails if the code with a patch does not compile, if the simulation breaks a rule on
// the code as it is, or if it does not find an error that is put back.
//
//	go run ./test/sim/mutants -run 'job|daemonset'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	count := flag.Int("count", 100, "number of seeds to try on each error")
	only := flag.String("run", "", "regular expression of the names of the patches to try")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *count, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, count int, only string) error {
	filter, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := mutants()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !filter.MatchString(m.name) })
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlays := map[string]string{} // by the name of the mutant
	for _, m := range all {
		if overlays[m.name], err = prepare(ctx, m, root, filepath.Join(dir, m.name)); err != nil {
			return err
		}
	}
	broken, err := simulate(ctx, root, "", count)
	if err != nil {
		return err
	}
	if broken != "" {
		return fmt.Errorf("the simulation finds an error in the code as it is: %s", broken)
	}
	var missed []string
	for _, m := range all {
		broken, err := simulate(ctx, root, overlays[m.name], count)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if broken == "" {
			missed = append(missed, m.name)
			broken = fmt.Sprintf("not found with %d seeds", count)
		}
		fmt.Printf("%s: %s\n", m.name, broken)
	}
	if len(missed) > 0 {
		return fmt.Errorf("the simulation does not find %s", strings.Join(missed, ", "))
	}
	return nil
}

// prepare writes the overlay of a mutant into a new directory, and compiles what it changes.
func prepare(ctx context.Context, m mutant, root, dir string) (overlay string, err error) {
	changed, err := m.changedFiles(root)
	if err != nil {
		return "", err
	}
	if overlay, err = writeOverlay(dir, changed); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-overlay=" + overlay}, m.packages()...)...)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("patch %s: go build: %w\n%s", m.name, err, output)
	}
	return overlay, nil
}

// moduleRoot returns the directory of the main module.
func moduleRoot(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(output)), err
}

// message matches what a test of the simulation says of a broken rule.
var message = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (seed \d+: .*)$`)

// lastWords is how many bytes of the output an error shows.
const lastWords = 4000

// simulate runs the simulation on the code with an overlay, or without one if it is "", until
// a seed breaks a rule. It returns what the rule says, "" if no seed breaks one.
func simulate(ctx context.Context, root, overlay string, count int) (broken string, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay="+overlay, "-vet=off", "-count=1", "-timeout=0", "-failfast", "-run=^TestSimulation$",
		"./test/sim", "-sim.wide", fmt.Sprintf("-sim.count=%d", count))
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test ends the test with itself
	cmd.WaitDelay = time.Minute
	output, err := cmd.CombinedOutput()
	if err == nil {
		return "", nil
	}
	found := message.FindSubmatch(output)
	if exit := new(exec.ExitError); found == nil || ctx.Err() != nil || !errors.As(err, &exit) {
		return "", fmt.Errorf("go test: %w\n%s", err, output[max(0, len(output)-lastWords):])
	}
	return string(found[1]), nil
}
