package wireguard

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// program is WireGuard in this process, behind an interface of the kernel's TUN driver.
// The interface goes when the program ends.
type program struct {
	device *device.Device
	index  int    // of the interface
	peers  []Peer // those that setPeers has set: nobody else can
}

// tunDevice makes interfaces whose packets a process reads and writes.
const tunDevice = "/dev/net/tun"

// Check returns an error if this machine can have no interface of WireGuard. It makes
// none.
func Check() error {
	if _, err := os.Stat("/sys/module/wireguard"); err == nil {
		return nil
	}
	if err := exec.Command("modprobe", "--dry-run", "--quiet", "wireguard").Run(); err == nil {
		return nil // the kernel loads it
	}
	file, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return lacking(err)
	}
	return unix.Close(file)
}

func lacking(err error) error {
	return fmt.Errorf("the kernel has neither WireGuard (modprobe wireguard) nor %s (modprobe tun), and an encrypted pod network needs one of them: %w", tunDevice, err)
}

// start starts the program, which has the port then, and makes its interface.
func (d *Device) start(name string, mtu int) (*program, netlink.Link, error) {
	packets, err := openTUN(name)
	if err != nil {
		return nil, nil, err
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetMTU(link, mtu) // the program reads it once
	}
	if err != nil {
		_ = packets.Close()
		return nil, nil, err
	}
	link.Attrs().MTU = mtu
	p := &program{index: link.Attrs().Index, device: device.NewDevice(packets, conn.NewDefaultBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: d.log})}
	err = p.device.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=%d\n", d.key.Bytes(), d.port))
	if err == nil {
		err = p.device.Up()
	}
	if err != nil {
		p.device.Close()
		return nil, nil, err
	}
	return p, link, nil
}

// openTUN makes an interface without watching it: Apply does, in the right network
// namespace.
func openTUN(name string) (tun.Device, error) {
	file, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, lacking(err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(file, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(file)
		return nil, fmt.Errorf("making the interface %s by %s: %w", name, tunDevice, err)
	}
	packets, _, err := tun.CreateUnmonitoredTUNFromFD(file) // which owns the file then
	return packets, err
}

// has reports whether the program runs behind an interface, with that MTU.
func (p *program) has(link netlink.Link, mtu int) bool {
	select {
	case <-p.device.Wait(): // as after somebody has removed the interface
		return false
	default:
		return link.Attrs().Index == p.index && link.Attrs().MTU == mtu
	}
}

// setPeers gives the program its peers. It reports whether it had others.
func (p *program) setPeers(peers []Peer) (changed bool, err error) {
	gone, set := difference(p.peers, peers)
	if len(gone)+len(set) == 0 {
		return false, nil
	}
	if err := p.device.IpcSet(configuration(gone, set)); err != nil {
		return true, err
	}
	p.peers = slices.Clone(peers)
	return true, nil
}

// configuration returns a change of peers in WireGuard's protocol for programs
// (https://www.wireguard.com/xplatform).
func configuration(gone []Key, set []Peer) string {
	var b strings.Builder
	for _, key := range gone {
		fmt.Fprintf(&b, "public_key=%x\nremove=true\n", key[:])
	}
	for _, peer := range set {
		fmt.Fprintf(&b, "public_key=%x\nendpoint=%s\nreplace_allowed_ips=true\n", peer.Key[:], peer.Endpoint)
		for _, ips := range peer.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", ips)
		}
	}
	return b.String()
}
