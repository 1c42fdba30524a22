package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/test/mark"
)

// makeMachine makes what plays another machine: a network namespace behind an interface of this
// machine, which is its router, and a mount namespace with its own records of
// clusters. What runs in it shares the kernel, and the files elsewhere.
const makeMachine = `set -e
mkdir -p %[4]s $DIR/lib
mount --bind $DIR $DIR
mount --make-private $DIR
touch $DIR/mnt
unshare --mount=$DIR/mnt true
nsenter --mount=$DIR/mnt mount --bind $DIR/lib %[4]s
ip netns add $NETNS
ip link add $LINK type veth peer name eth0 netns $NETNS
ip addr add %[1]s.1/30 dev $LINK
ip link set $LINK up
ip -n $NETNS link set lo up
ip -n $NETNS addr add %[1]s.2/30 dev eth0
ip -n $NETNS link set eth0 up
ip -n $NETNS route add default via %[1]s.1
cat >there.sh <<END
exec nsenter --mount=%[2]s/mnt --net=/var/run/netns/%[3]s "\$@"
END
cat >renumber.sh <<END
set -e
ip addr add %[1]s.5/30 dev $LINK
ip -n $NETNS addr del %[1]s.2/30 dev eth0
ip -n $NETNS addr add %[1]s.6/30 dev eth0
ip -n $NETNS route add default via %[1]s.5
END
`

// removeMachine removes what makeMachine has made, and a cluster that is left there.
const removeMachine = `sh there.sh coracle leave --yes --force --name=$1 >&2 || sh there.sh coracle down --yes --name=$1 >&2
umount $DIR/mnt
umount $DIR
ip netns del $NETNS
ip link del $LINK 2>/dev/null
true
`

// machines counts those of this run, which two sessions may make at once.
var machines atomic.Int32

// machine makes another machine, on which the script there.sh runs commands, and
// sets ADDRESS to its address: machine CLUSTER, which is removed there at the end of
// the session. The script renumber.sh replaces the address by RENUMBERED.
func machine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: machine CLUSTER")
	}
	// Names and addresses are of this session alone. The second ones are for benchmarks of
	// networks (RFC 2544), so that nothing else has them.
	number := int(machines.Add(1))
	namespace, link := mark.Name(fmt.Sprint("there", number)), mark.Name(fmt.Sprint("m", number))
	network := fmt.Sprintf("198.18.%d", (2*os.Getpid()+number)%256)
	dir := filepath.Join(ts.MkAbs("."), "there")
	run := func(script string, arguments ...string) error {
		cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, arguments...)...)
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = append(environment(ts), "DIR="+dir, "NETNS="+namespace, "LINK="+link)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	ts.Defer(func() {
		if err := run(removeMachine, args[0]); err != nil {
			ts.Logf("remove the other machine: %v", err)
		}
	})
	script := fmt.Sprintf(makeMachine, network, dir, namespace, host.RootOfRoot)
	ts.Check(run(script))
	ts.Setenv("ADDRESS", network+".2")
	ts.Setenv("RENUMBERED", network+".6")
}
