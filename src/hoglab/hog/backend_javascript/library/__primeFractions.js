// The first 32 bits of the fractions of a root of the first prime numbers.
export function __primeFractions(count, root) {
    const primes = []
    for (let number = 2; primes.length < count; number++) {
        if (primes.every((prime) => number % prime)) {
            primes.push(number)
        }
    }
    return primes.map((prime) => {
        const exact = Math.pow(prime, 1 / root)
        return Math.floor((exact - Math.floor(exact)) * 4294967296) | 0
    })
}
