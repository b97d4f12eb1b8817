// What AMD's library does with a label that it does not know: nothing catches the exception on its way out.

#include <stdexcept>

extern "C" void throw_exception()
{
    throw std::out_of_range("map::at");
}
