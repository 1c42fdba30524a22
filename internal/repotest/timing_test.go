package repotest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// finding is what a rule has found, with its function.
type finding struct {
	at, function, what string
}

// exceptions are functions that may break a rule, as "file: function", with the
// reason.
type exceptions map[string]string

// report fails the test for each finding that is no exception, and for each
// exception that is not needed.
func (e exceptions) report(t *testing.T, found []finding, reason string) {
	t.Helper()
	used := map[string]bool{}
	for _, f := range found {
		file, _, _ := strings.Cut(f.at, ":")
		name := file + ": " + f.function
		if used[name] = true; e[name] == "" {
			t.Errorf("%s (%s) %s: %s", f.at, f.function, f.what, reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if !used[name] {
			t.Errorf("%s is an exception without need", name)
		}
	}
}

// rule says what is wrong with a node of a function, if anything.
type rule func(d *durations, fn *ast.FuncDecl, n ast.Node) string

// everywhere returns what the rule finds in the tests of all directories.
func (r rule) everywhere(t *testing.T) (found []finding) {
	t.Helper()
	packages, all := testPackages(t), directories(t)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		found = append(found, r.in(packages[dir], newDurations(all[dir]))...)
	}
	return found
}

// in returns what the rule finds in the tests of a directory, outside bubbles of
// testing/synctest.
func (r rule) in(files []testFile, known *durations) (found []finding) {
	newBubbles(files).outside(files, func(f testFile, fn *ast.FuncDecl, n ast.Node) {
		if what := r(known, fn, n); what != "" {
			found = append(found, finding{fmt.Sprintf("%s:%d", f.name, f.tokens.Position(n.Pos()).Line), fn.Name.Name, what})
		}
	})
	return found
}

// directories returns the Go files by directory.
func directories(t *testing.T) map[string][]*ast.File {
	t.Helper()
	dirs, all := map[string][]*ast.File{}, everySource(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		dirs[filepath.Dir(path)] = append(dirs[filepath.Dir(path)], all[path].syntax)
	}
	return dirs
}

// isCall reports whether n is a call of a function of a package.
func isCall(n ast.Node, of string, names ...string) (*ast.CallExpr, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil, false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, called.Sel.Name) {
		return nil, false
	}
	x, ok := called.X.(*ast.Ident)
	return call, ok && x.Name == of
}

// TestTestsDoNotSleep allows sleeps in bubbles alone, where they are in virtual
// time.
func TestTestsDoNotSleep(t *testing.T) {
	exceptions{}.report(t, rule(sleeps).everywhere(t), "a sleep is too long on most machines and too short on a busy one; wait on a condition, or use testing/synctest")
}

func sleeps(_ *durations, _ *ast.FuncDecl, n ast.Node) string {
	if _, ok := isCall(n, "time", "Sleep"); ok {
		return "sleeps"
	}
	return ""
}

// TestTestsDoNotRace finds assertions that too much time has passed. That at
// least some has passed holds on any machine. A bound may hold with a flag for
// soaks.
func TestTestsDoNotRace(t *testing.T) {
	exceptions{}.report(t, rule(races).everywhere(t), "another process makes it slow; count operations, bytes or the order of events, use testing/synctest or costtest, or print the time and bound it with a flag for soaks")
}

func races(d *durations, fn *ast.FuncDecl, n ast.Node) string {
	var conditions []ast.Expr
	var body []ast.Stmt
	switch n := n.(type) {
	case *ast.IfStmt:
		conditions, body = []ast.Expr{n.Cond}, n.Body.List
	case *ast.CaseClause:
		conditions, body = n.List, n.Body
	}
	if fails(body) && slices.ContainsFunc(conditions, func(c ast.Expr) bool { return boundsTime(fn, c) && !d.mentionsFlag(c) }) {
		return "fails if something took long"
	}
	return ""
}

// fails reports whether statements fail a test.
func fails(body []ast.Stmt) (found bool) {
	for _, s := range body {
		ast.Inspect(s, func(n ast.Node) bool {
			if called, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "FailNow", "Fail"}, called.Sel.Name) {
				found = true
			}
			return !found
		})
	}
	return found
}

// boundsTime reports whether a condition holds if too much time has passed.
func boundsTime(fn *ast.FuncDecl, condition ast.Expr) (found bool) {
	ast.Inspect(condition, func(n ast.Node) bool {
		if c, ok := n.(*ast.BinaryExpr); ok {
			switch c.Op {
			case token.GTR, token.GEQ, token.NEQ, token.EQL:
				found = found || isElapsed(fn, c.X)
			case token.LSS, token.LEQ:
				found = found || isElapsed(fn, c.Y)
			}
		}
		return !found
	})
	return found
}

// isElapsed reports whether an expression is the time since another time, or a
// variable with it.
func isElapsed(fn *ast.FuncDecl, e ast.Expr) bool {
	if _, ok := isCall(e, "time", "Since"); ok {
		return true
	}
	if call, ok := e.(*ast.CallExpr); ok {
		called, ok := call.Fun.(*ast.SelectorExpr)
		return ok && called.Sel.Name == "Sub" && len(call.Args) == 1 && isNow(fn, called.X) && isNow(fn, call.Args[0])
	}
	return isAssigned(fn, e, func(value ast.Expr) bool {
		_, isVariable := value.(*ast.Ident)
		return !isVariable && isElapsed(fn, value)
	})
}

// isNow reports whether an expression is a reading of the clock.
func isNow(fn *ast.FuncDecl, e ast.Expr) bool {
	isReading := func(value ast.Expr) bool {
		_, ok := isCall(value, "time", "Now")
		return ok
	}
	return isReading(e) || isAssigned(fn, e, isReading)
}

// isAssigned reports whether an expression is a variable that a function gives
// such a value.
func isAssigned(fn *ast.FuncDecl, e ast.Expr, is func(ast.Expr) bool) (found bool) {
	variable, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, left := range a.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == variable.Name && is(a.Rhs[i]) {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// leastPatience is the least bound of a wait for something real. A machine that
// does other work may stop for tens of seconds.
const leastPatience = time.Minute

// TestTestsArePatient finds waits for something real that fail a test in less
// than leastPatience.
func TestTestsArePatient(t *testing.T) {
	const (
		ends    = "that the wait ends with its context is what is tested"
		lasts   = "so long lasts an attack, or the calm after it"
		unknown = "what a longer request has done is unknown, which is no failure"
	)
	exceptions{
		"internal/apiserver/admission/starting_test.go: TestPluginStartTimeout":   ends,
		"internal/host/kubeconfig_test.go: TestKubeconfigOfAKilledWriter":         ends,
		"internal/kubelet/logs/hostile_test.go: TestEndlessLineEndsWithItsReader": ends,
		"internal/apiserver/fuzz_test.go: FuzzRequest":                            "a watch has no other end, and a timeout is a valid answer",
		"test/attack/bodies_test.go: waitForAttack":                               lasts,
		"test/attack/share_test.go: checkAttempts":                                lasts,
		"test/attack/share_test.go: TestBodiesThatFillTheBudget":                  lasts,
		"test/attack/latency_test.go: slow":                                       lasts,
		"test/attack/faults_test.go: start":                                       unknown,
		"test/attack/kill_test.go: try":                                           unknown,
		"test/history/client_test.go: call":                                       unknown,
	}.report(t, rule(impatient).everywhere(t), "a machine that does other work needs longer; wait up to three minutes, which costs nothing when it works")
}

func impatient(d *durations, fn *ast.FuncDecl, n ast.Node) string {
	if bound, ok := d.bound(fn, n); ok && bound < leastPatience {
		return fmt.Sprintf("waits %v", bound)
	}
	return ""
}

// bound returns the time after which a wait gives up, if it is known.
func (d *durations) bound(fn *ast.FuncDecl, n ast.Node) (time.Duration, bool) {
	switch n := n.(type) {
	case *ast.CommClause:
		return d.late(fn, n)
	case *ast.CallExpr:
		if call, ok := isCall(n, "context", "WithTimeout", "WithTimeoutCause"); ok {
			return d.of(fn, call.Args[1])
		}
		if call, ok := isCall(n, "wait", "PollUntilContextTimeout"); ok {
			return d.of(fn, call.Args[2])
		}
		called, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) != 1 {
			return 0, false
		}
		switch called.Sel.Name {
		case "SetDeadline", "SetReadDeadline", "SetWriteDeadline":
			return d.fromNow(fn, n.Args[0])
		case "After", "Before": // time.Now().After(deadline)
			if _, ok := isCall(called.X, "time", "Now"); !ok {
				return 0, false
			}
			return d.assigned(fn, n.Args[0], d.fromNow)
		}
	}
	return 0, false
}

// late returns the time of a case of a select that fails the test.
func (d *durations) late(fn *ast.FuncDecl, c *ast.CommClause) (time.Duration, bool) {
	received, ok := c.Comm.(*ast.ExprStmt)
	if !ok || !fails(c.Body) {
		return 0, false
	}
	from, ok := received.X.(*ast.UnaryExpr)
	if !ok || from.Op != token.ARROW {
		return 0, false
	}
	timer := func(fn *ast.FuncDecl, e ast.Expr) (time.Duration, bool) {
		if call, ok := isCall(e, "time", "After", "NewTimer"); ok {
			return d.of(fn, call.Args[0])
		}
		return 0, false
	}
	if after, ok := timer(fn, from.X); ok {
		return after, true
	}
	channel := from.X
	if field, ok := channel.(*ast.SelectorExpr); ok && field.Sel.Name == "C" {
		channel = field.X
	}
	return d.assigned(fn, channel, timer)
}

// fromNow returns d of time.Now().Add(d).
func (d *durations) fromNow(fn *ast.FuncDecl, e ast.Expr) (time.Duration, bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return 0, false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || called.Sel.Name != "Add" {
		return 0, false
	}
	if _, ok := isCall(called.X, "time", "Now"); !ok {
		return 0, false
	}
	return d.of(fn, call.Args[0])
}

// assigned returns the duration of the value that a function gives a variable.
func (d *durations) assigned(fn *ast.FuncDecl, e ast.Expr, of func(*ast.FuncDecl, ast.Expr) (time.Duration, bool)) (found time.Duration, ok bool) {
	isAssigned(fn, e, func(value ast.Expr) bool {
		found, ok = of(fn, value)
		return ok
	})
	return found, ok
}

// durations evaluates durations of a directory's code.
type durations struct {
	constants map[string]ast.Expr
	flags     map[string]bool
}

func newDurations(files []*ast.File) *durations {
	d := &durations{constants: map[string]ast.Expr{}, flags: map[string]bool{}}
	for _, f := range files {
		for _, declaration := range f.Decls {
			if g, ok := declaration.(*ast.GenDecl); ok {
				d.declare(g)
			}
		}
	}
	return d
}

func (d *durations) declare(g *ast.GenDecl) {
	for _, s := range g.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || len(v.Names) != len(v.Values) {
			continue
		}
		for i, name := range v.Names {
			if g.Tok == token.CONST {
				d.constants[name.Name] = v.Values[i]
			} else if call, ok := v.Values[i].(*ast.CallExpr); ok {
				called, ok := call.Fun.(*ast.SelectorExpr)
				d.flags[name.Name] = ok && fmt.Sprint(called.X) == "flag"
			}
		}
	}
}

// mentionsFlag reports whether a condition depends on a flag of the tests.
func (d *durations) mentionsFlag(condition ast.Expr) (found bool) {
	ast.Inspect(condition, func(n ast.Node) bool {
		if star, ok := n.(*ast.StarExpr); ok {
			found = found || d.flags[fmt.Sprint(star.X)]
		}
		return !found
	})
	return found
}

// of returns the value of a constant expression in a function.
func (d *durations) of(fn *ast.FuncDecl, e ast.Expr) (time.Duration, bool) {
	local := &durations{constants: maps.Clone(d.constants), flags: d.flags}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if g, ok := n.(*ast.GenDecl); ok && g.Tok == token.CONST {
			local.declare(g)
		}
		return true
	})
	value := local.value(e, 0)
	n, ok := constant.Int64Val(constant.ToInt(value))
	return time.Duration(n), ok && value.Kind() != constant.Unknown
}

func (d *durations) value(e ast.Expr, depth int) constant.Value {
	const deepest = 10
	if depth > deepest {
		return constant.MakeUnknown()
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return d.value(e.X, depth+1)
	case *ast.Ident:
		if c := d.constants[e.Name]; c != nil {
			return d.value(c, depth+1)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{
			"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		}
		if unit := units[e.Sel.Name]; unit != 0 && fmt.Sprint(e.X) == "time" {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.BinaryExpr:
		x, y := d.value(e.X, depth+1), d.value(e.Y, depth+1)
		switch e.Op {
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(x, e.Op, y)
		case token.QUO:
			if x.Kind() == constant.Int && y.Kind() == constant.Int && constant.Sign(y) != 0 {
				return constant.BinaryOp(x, token.QUO_ASSIGN, y)
			}
		}
	}
	return constant.MakeUnknown()
}

// TestTestsLookLongForGoroutines checks that tests look for leaked goroutines
// with patience.
func TestTestsLookLongForGoroutines(t *testing.T) {
	for file := range goFiles(t) {
		if strings.HasPrefix(file, "internal/repotest/") {
			continue
		}
		if strings.Contains(read(t, file), "goleak.Verify") {
			t.Errorf("%s uses goleak alone, which looks for half a second: use leaktest", file)
		}
	}
}

// machinePort matches a port of the machine in a session: of a pod, or of a
// component's flag.
var machinePort = regexp.MustCompile(`\bhostPort: *[1-9]|\bcoracle (up|apiserver|controller-manager|scheduler|kubelet|proxy|dns)\b.* --[a-z-]*port=[1-9]`)

// TestTestsChooseFreePorts finds ports of the machine that a test has chosen
// beforehand. What is chosen in a network namespace of a test's own is free, and
// is not written as a literal.
func TestTestsChooseFreePorts(t *testing.T) {
	const reason = "two runs on one machine meet there, or something that was left by another; listen on port 0, or use freeport"
	literal := regexp.MustCompile(`^"[^"]*:[1-9][0-9]*"$`)
	for dir, files := range testPackages(t) {
		runsPods := dir == "test/attack" || dir == "test/script"
		for _, f := range files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				at := ""
				switch n := n.(type) {
				case *ast.CallExpr:
					called, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || !strings.HasPrefix(called.Sel.Name, "Listen") {
						break
					}
					for _, argument := range n.Args {
						if text, ok := argument.(*ast.BasicLit); ok && literal.MatchString(text.Value) {
							at = text.Value
						}
					}
				case *ast.KeyValueExpr:
					if number, ok := n.Value.(*ast.BasicLit); ok && runsPods && fmt.Sprint(n.Key) == "HostPort" {
						at = number.Value
					}
				}
				if at != "" {
					t.Errorf("%s:%d listens at %s: %s", f.name, f.tokens.Position(n.Pos()).Line, at, reason)
				}
				return true
			})
		}
	}
	err := walk(func(path string, _ fs.DirEntry) error {
		if !strings.HasPrefix(path, "test/script/testdata/") {
			return nil
		}
		for i, line := range strings.Split(read(t, path), "\n") {
			if machinePort.MatchString(line) {
				t.Errorf("%s:%s: %s: %s", path, strconv.Itoa(i+1), strings.TrimSpace(line), reason)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
